/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define READ (O_RDONLY | O_NOATIME | O_NONBLOCK | O_CLOEXEC)

/* Linux, include/uapi/linux/openat2.h, which older headers lack */
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define NO_XDEV 0x01
#define NO_SYMLINKS 0x04
#define CACHED 0x20
struct how {
    uint64_t flags, mode, resolve;
};

static const struct mount *mount_of(const struct walk *w,
                                    const struct stat *st)
{
    const struct mount *m = mounts_of(w->mounts, major(st->st_dev),
                                      minor(st->st_dev));

    return m && mounts_can_map(m->type) ? m : NULL;
}

static void keep(struct walk *w, const char *path)
{
    struct stat st;
    int fd;

    if (w->opened == WALK_MAX_OPEN || stat(path, &st) ||
        !S_ISREG(st.st_mode) || !mount_of(w, &st)) {
        return;
    }
    fd = open(path, READ);
    if (fd >= 0) {
        w->open[w->opened++] = fd;
    }
}

static void keep_all(struct walk *w, const char *parent)
{
    DIR *all = opendir(parent);
    struct dirent *entry;
    char path[PATH_MAX];

    while (all && (entry = readdir(all))) {
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name);
            keep(w, path);
        }
    }
    if (all) {
        closedir(all);
    }
}

void walk_processes(struct walk *w)
{
    DIR *all = opendir("/proc");
    struct dirent *entry;
    char path[PATH_MAX];

    w->opened = 0;
    while (all && (entry = readdir(all)) && budget_time(w->scan->budget)) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9' ||
            atoi(entry->d_name) == getpid()) {
            continue;
        }
        snprintf(path, sizeof(path), "/proc/%s/map_files", entry->d_name);
        keep_all(w, path);
        snprintf(path, sizeof(path), "/proc/%s/fd", entry->d_name);
        keep_all(w, path);
    }
    if (all) {
        closedir(all);
    }
}

/* The inode's generation, from the handle that NFS would give to a client */
static bool generation(int fd, uint64_t magic, uint32_t *value)
{
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } u = { .handle = { .handle_bytes = MAX_HANDLE_SZ } };
    unsigned at = 4;
    int mount;

    if (name_to_handle_at(fd, "", &u.handle, &mount, AT_EMPTY_PATH)) {
        return false;
    }
    if (magic == MAGIC_XFS && u.handle.handle_type & 0x80) {
        at = 8;
    }
    if (u.handle.handle_bytes < at + 4) {
        return false;
    }
    memcpy(value, u.handle.f_handle + at, 4);
    return true;
}

/* Adds a file once. */
static void add(struct walk *w, int fd, const struct stat *st)
{
    const struct mount *m = mount_of(w, st);
    struct owner owner = {
        .ino = st->st_ino, .major = major(st->st_dev),
        .minor = minor(st->st_dev), .mode = st->st_mode, .kind = OWNER_FILE,
    };
    uint32_t number;

    if (!m || !st->st_size) {
        return;
    }
    owner.magic = !strcmp(m->type, "xfs") ? MAGIC_XFS : MAGIC_EXT;
    /* Instead of the address that tells owners apart otherwise */
    owner.mapping = ((uint64_t)st->st_dev * UINT64_C(0xff51afd7ed558ccd)) ^
                    st->st_ino;
    if (!generation(fd, owner.magic, &owner.generation)) {
        return;
    }
    number = owners_add(&w->scan->owners, &owner);
    if (number != UINT32_MAX) {
        resident_add(&w->resident, w->scan, fd, st->st_size, number);
    }
}

static int open_below(struct walk *w, int parent, const char *name, int more)
{
    struct how how = {
        .flags = READ | O_NOFOLLOW | more,
        .resolve = NO_XDEV | NO_SYMLINKS | CACHED,
    };
    long fd;

    if (!w->no_cached) {
        fd = syscall(SYS_openat2, parent, name, &how, sizeof(how));
        if (fd >= 0 || (errno != ENOSYS && errno != EINVAL)) {
            return fd;
        }
        w->no_cached = true;
    }
    return openat(parent, name, READ | O_NOFOLLOW | more);
}

struct entry {                  /* struct linux_dirent64 */
    uint64_t ino, offset;
    uint16_t length;
    uint8_t type;
    char name[];
};

static bool going(const struct walk *w)
{
    return budget_time(w->scan->budget) && budget_reads(w->scan->budget);
}

static void walk_directory(struct walk *w, int parent, dev_t device, int depth)
{
    char buffer[8192] __attribute__((aligned(8)));
    int here = openat(parent, ".", O_PATH | O_CLOEXEC);
    long got;

    /* With this look-up the kernel knows who may search the directory: access
     * lists that it would have to read first end a cached look-up. */
    if (here >= 0) {
        close(here);
    }
    while (going(w) &&
           (got = syscall(SYS_getdents64, parent, buffer, sizeof(buffer)))
           > 0) {
        for (long at = 0; at < got && going(w);) {
            const struct entry *e = (const struct entry *)(buffer + at);
            bool down = e->type == DT_DIR;
            struct stat st;
            int fd;

            at += e->length;
            if ((!down && e->type != DT_REG) || !strcmp(e->name, ".") ||
                !strcmp(e->name, "..") ||
                (down && depth == WALK_MAX_DEPTH)) {
                continue;
            }
            fd = open_below(w, parent, e->name, down ? O_DIRECTORY : 0);
            if (fd < 0) {
                continue;
            }
            if (!fstat(fd, &st) && st.st_dev == device) {
                if (down) {
                    walk_directory(w, fd, device, depth + 1);
                } else if (S_ISREG(st.st_mode)) {
                    add(w, fd, &st);
                }
            }
            close(fd);
        }
    }
}

static int by_memory(const void *a, const void *b)
{
    const struct run *one = a, *two = b;

    return one->page < two->page ? -1 : one->page > two->page;
}

/* Sorts the runs by memory; of those that overlap the first is kept. Those
 * that begin before where the listing does are not. */
static void sort_runs(struct scan *s)
{
    uint32_t kept = 0;
    uint64_t end = 0;

    qsort(s->run, s->runs, sizeof(s->run[0]), by_memory);
    for (uint32_t i = 0; i < s->runs; i++) {
        const struct run *run = &s->run[i];

        if (run->page >= end && run->page >= s->from) {
            end = run->page + run->pages;
            s->owners.owner[run->owner].runs++;
            s->run[kept++] = *run;
        }
    }
    s->runs = kept;
}

void walk_files(struct walk *w)
{
    for (unsigned i = 0; i < w->opened; i++) {
        struct stat st;

        if (budget_time(w->scan->budget) && !fstat(w->open[i], &st)) {
            add(w, w->open[i], &st);
        }
        close(w->open[i]);
    }
    for (unsigned i = 0; i < w->mounts->count; i++) {
        const struct mount *m = &w->mounts->mount[i];

        if (m->fd >= 0) {
            walk_directory(w, m->fd, makedev(m->major, m->minor), 0);
        }
    }
    sort_runs(w->scan);
}
