/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>

#define NOBODY 65534

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "not a processor the lister is for"
#endif

#define DATA(member) offsetof(struct seccomp_data, member)
#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, DATA(member))
#define RETURN(what) BPF_STMT(BPF_RET | BPF_K, what)
#define REFUSE RETURN(SECCOMP_RET_ERRNO | EPERM)
#define ALLOW(call)                                                 \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1),          \
    RETURN(SECCOMP_RET_ALLOW)
/* Opened for reading only, and nothing made: argument `n` has the flags */
#define ALLOW_READING(call, n)                                      \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 4),          \
    LOAD(args[n]),                                                  \
    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K,                            \
             O_ACCMODE | O_CREAT | O_TRUNC, 1, 0),                  \
    RETURN(SECCOMP_RET_ALLOW),                                      \
    REFUSE

static struct sock_filter filter[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    ALLOW(pread64),
    ALLOW(read),
    ALLOW(write),
    ALLOW(close),
    ALLOW(mmap),
    ALLOW(munmap),
    ALLOW(brk),
    ALLOW(ppoll),
#ifdef SYS_poll
    ALLOW(poll),
#endif
    ALLOW(clock_gettime),
    ALLOW(getrusage),
    ALLOW(exit_group),
    ALLOW(exit),
    ALLOW(rt_sigreturn),
    ALLOW(restart_syscall),
    ALLOW_READING(open_by_handle_at, 2),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5),
    LOAD(args[1]),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)FS_IOC_FIEMAP, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)FS_IOC_GETFLAGS, 1, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)FS_IOC_FSGETXATTR, 0, 1),
    RETURN(SECCOMP_RET_ALLOW),
    REFUSE,
};

static const char *restrict_calls(void)
{
    struct sock_fprog program = {
        .filter = filter, .len = sizeof(filter) / sizeof(*filter),
    };

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) ?
           "system calls cannot be restricted" : NULL;
}

const char *privileges_drop(void)
{
    struct __user_cap_header_struct header = {
        .version = _LINUX_CAPABILITY_VERSION_3,
    };
    struct __user_cap_data_struct caps[2] = { { 0 } };
    struct rlimit nothing = { 0, 0 };
    struct stat st;
    int signal = 0;

    if (!fstat(STDOUT_FILENO, &st) && !S_ISREG(st.st_mode) &&
        setrlimit(RLIMIT_FSIZE, &nothing)) {
        return "writing to files cannot be forbidden";
    }
    caps[0].effective = caps[0].permitted = 1u << CAP_DAC_READ_SEARCH;
    /* Another user is not sent the signal of a parent's death, unless it is
     * set again. */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) ||
        prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) || setgroups(0, NULL) ||
        setresgid(NOBODY, NOBODY, NOBODY) ||
        setresuid(NOBODY, NOBODY, NOBODY) ||
        prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) ||
        syscall(SYS_capset, &header, caps)) {
        return "privileges cannot be dropped";
    }
    return restrict_calls();
}
