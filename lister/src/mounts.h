/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounted file systems: a descriptor in each that files can be opened by,
 * taken before privileges are dropped.
 */
#ifndef MOUNTS_H
#define MOUNTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define MOUNTS_MAX 256

struct mount {
    int id;
    unsigned major, minor;      /* of the file system */
    int fd;                     /* its root, a directory; -1: none */
    char type[32];
};

struct mounts {
    unsigned count;
    struct mount mount[MOUNTS_MAX];
};

/* A file system whose files lie on a disk where it says they do */
bool mounts_can_map(const char *type);
/* Those that can be mapped are opened, one mount of each. */
void mounts_find(struct mounts *m);
const struct mount *mounts_of(const struct mounts *m, unsigned major,
                              unsigned minor);

/* The same with lines of mountinfo, for tests */
void mounts_read(struct mounts *m, FILE *info);
/* One line of mountinfo, for tests.  `where` has room for PATH_MAX. */
bool mounts_parse(const char *line, struct mount *mount, char *where);

#endif
