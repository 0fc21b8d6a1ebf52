/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file system that never answers: who uses it hangs, and once killed, in
 * uninterruptible sleep.  It is FUSE: a request that its daemon has read has
 * to be answered, whatever became of the process.  The daemon is the test,
 * so that the end of the test frees all that hang.
 */
#ifndef HANG_H
#define HANG_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/fuse.h>

/* Seen by this process and its children only: all see another /mnt */
#define HANG_PLACE "/mnt"

static int hang_fd = -1;

static void hang_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);

    if (fd < 0 || write(fd, text, strlen(text)) < 0) {
        perror(path);
    }
    close(fd);
}

/* A name space for mounts: in one for users if we are not root */
static bool hang_unshare(void)
{
    char users[64], groups[64];

    if (!unshare(CLONE_NEWNS)) {
        return true;
    }
    snprintf(users, sizeof(users), "0 %d 1", getuid());
    snprintf(groups, sizeof(groups), "0 %d 1", getgid());
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) {
        return false;
    }
    hang_write("/proc/self/uid_map", users);
    hang_write("/proc/self/setgroups", "deny");
    hang_write("/proc/self/gid_map", groups);
    return true;
}

/* The request read next, 0: there is none */
static ssize_t hang_read(void *request, size_t size)
{
    ssize_t got;

    do {
        got = read(hang_fd, request, size);
    } while (got < 0 && (errno == EINTR || errno == ENOENT));
    return got < 0 ? 0 : got;
}

static bool hang_answer_init(void)
{
    static union {
        struct fuse_in_header header;
        char room[FUSE_MIN_READ_BUFFER];
    } in;
    struct {
        struct fuse_out_header header;
        struct fuse_init_out init;
    } out = {
        .header.len = sizeof(out),
        .init = { .major = FUSE_KERNEL_VERSION, .minor = 31,
                  .max_write = 4096 },
    };

    if (!hang_read(&in, sizeof(in)) || in.header.opcode != FUSE_INIT) {
        return false;
    }
    out.header.unique = in.header.unique;
    return write(hang_fd, &out, sizeof(out)) == sizeof(out);
}

/* NULL, or why there is none.  Changes the name spaces of the process. */
static const char *hang_mount(void)
{
    char options[80];

    if (!hang_unshare()) {
        return "no name space can be made";
    }
    hang_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (hang_fd < 0) {
        return "/dev/fuse cannot be opened";
    }
    snprintf(options, sizeof(options),
             "fd=%d,rootmode=40000,user_id=0,group_id=0", hang_fd);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("hang", HANG_PLACE, "fuse", MS_NOSUID | MS_NODEV, options)) {
        return "FUSE cannot be mounted";
    }
    return hang_answer_init() ? NULL : "FUSE does not begin";
}

/* Hangs */
static void hang_here(void)
{
    struct stat st;

    stat(HANG_PLACE, &st);
}

/* The next process that hangs; -1: there is none */
static pid_t hang_next(void)
{
    static union {
        struct fuse_in_header header;
        char room[FUSE_MIN_READ_BUFFER];
    } in;

    while (hang_read(&in, sizeof(in))) {
        /* Others tell of signals. */
        if (in.header.opcode == FUSE_GETATTR) {
            return in.header.pid;
        }
    }
    return -1;
}

/* All that hang go on. */
static void hang_end(void)
{
    close(hang_fd);
    hang_fd = -1;
}

#endif
