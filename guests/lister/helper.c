/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What busybox cannot do in the guest the lister is tested in.
 *
 *   helper hold FILE...      maps, touches and locks each, until killed
 *   helper open FILE...      keeps them open, until killed
 *   helper read FILE FROM BYTES    reads a part into the cache
 *   helper scatter FILE N    reads every Nth page, without read-ahead
 *   helper write FILE RATE   overwrites random pages, RATE a second
 *   helper subvolume DIR NAME    makes an empty one, of btrfs
 *   helper snapshot OF DIR NAME  makes one that can be written to
 *   helper encrypt DIR       has what is made in it encrypted by fscrypt
 *   helper age DIR FILES KIB ROUNDS    creates, deletes, rewrites and reads
 *                            parts of files at random, short of memory
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <linux/btrfs.h>
#include <linux/fscrypt.h>

#include "age.h"

/* Pages of memory that a process needs now and then: 16 MiB */
#define PRESSED 4096

static int open_it(const char *path, int flags)
{
    int fd = open(path, flags);

    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

static void hold(const char *path)
{
    int fd = open_it(path, O_RDONLY);
    struct stat st;
    char *p;

    fstat(fd, &st);
    p = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || mlock(p, st.st_size)) {
        perror("mlock");
        exit(1);
    }
}

static void part(const char *path, long from, long bytes)
{
    int fd = open_it(path, O_RDONLY);
    static char buf[65536];

    while (bytes > 0) {
        ssize_t got = pread(fd, buf, bytes < 65536 ? bytes : 65536, from);

        if (got <= 0) {
            break;
        }
        from += got;
        bytes -= got;
    }
}

static void scatter(const char *path, long every)
{
    int fd = open_it(path, O_RDONLY);
    static char buf[4096];
    off_t at = 0;

    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    while (pread(fd, buf, 4096, at) > 0) {
        at += 4096 * every;
    }
}

static void overwrite(const char *path, long rate)
{
    int fd = open_it(path, O_RDWR);
    static char buf[4096];
    struct stat st;

    fstat(fd, &st);
    for (unsigned long n = 1;; n++) {
        memset(buf, n, sizeof(buf));
        if (pwrite(fd, buf, 4096, random() % (st.st_size / 4096) * 4096) < 0) {
            exit(1);
        }
        if (n % 64 == 0) {
            fsync(fd);
        }
        usleep(1000000 / rate);
    }
}

/* of: NULL for an empty one */
static int subvolume(const char *of, const char *directory, const char *name)
{
    struct btrfs_ioctl_vol_args args = {
        .fd = of ? open_it(of, O_RDONLY) : 0,
    };
    int fd = open_it(directory, O_RDONLY);

    snprintf(args.name, sizeof(args.name), "%s", name);
    if (ioctl(fd, of ? BTRFS_IOC_SNAP_CREATE : BTRFS_IOC_SUBVOL_CREATE,
              &args)) {
        perror(name);
        return 1;
    }
    return 0;
}

/* The key is added to the file system, and is of no secret. */
static int encrypt(const char *directory)
{
    struct {
        struct fscrypt_add_key_arg arg;
        char raw[64];
    } key = {
        .arg.key_spec.type = FSCRYPT_KEY_SPEC_TYPE_IDENTIFIER,
        .arg.raw_size = sizeof(key.raw),
        .raw = "a key of a test",
    };
    struct fscrypt_policy_v2 policy = {
        .version = FSCRYPT_POLICY_V2,
        .contents_encryption_mode = FSCRYPT_MODE_AES_256_XTS,
        .filenames_encryption_mode = FSCRYPT_MODE_AES_256_CTS,
        .flags = FSCRYPT_POLICY_FLAGS_PAD_32,
    };
    int fd = open_it(directory, O_RDONLY);

    if (ioctl(fd, FS_IOC_ADD_ENCRYPTION_KEY, &key)) {
        perror("key");
        return 1;
    }
    memcpy(policy.master_key_identifier, key.arg.key_spec.u.identifier,
           sizeof(policy.master_key_identifier));
    if (ioctl(fd, FS_IOC_SET_ENCRYPTION_POLICY, &policy)) {
        perror(directory);
        return 1;
    }
    return 0;
}

static int age(const char *directory, long files, long kib, long rounds)
{
    const struct aged aged = {
        .directory = directory, .files = files, .pages = kib / 4, .seed = 1,
    };
    const char *problem = age_files(&aged, rounds, PRESSED);

    if (problem) {
        fprintf(stderr, "%s\n", problem);
    }
    return problem != NULL;
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";

    if (!strcmp(what, "hold") || !strcmp(what, "open")) {
        for (int i = 2; i < argc; i++) {
            if (*what == 'h') {
                hold(argv[i]);
            } else {
                open_it(argv[i], O_RDONLY);
            }
        }
        puts("held");
        fflush(stdout);
        pause();
    } else if (!strcmp(what, "read") && argc == 5) {
        part(argv[2], atol(argv[3]), atol(argv[4]));
    } else if (!strcmp(what, "scatter") && argc == 4) {
        scatter(argv[2], atol(argv[3]));
    } else if (!strcmp(what, "write") && argc == 4) {
        overwrite(argv[2], atol(argv[3]));
    } else if (!strcmp(what, "subvolume") && argc == 4) {
        return subvolume(NULL, argv[2], argv[3]);
    } else if (!strcmp(what, "snapshot") && argc == 5) {
        return subvolume(argv[2], argv[3], argv[4]);
    } else if (!strcmp(what, "encrypt") && argc == 3) {
        return encrypt(argv[2]);
    } else if (!strcmp(what, "age") && argc == 6) {
        return age(argv[2], atol(argv[3]), atol(argv[4]), atol(argv[5]));
    } else {
        return 2;
    }
    return 0;
}
