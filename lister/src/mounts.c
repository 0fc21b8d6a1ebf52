/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mounts.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool mounts_can_map(const char *type)
{
    static const char *const types[] = { "ext4", "ext3", "ext2", "xfs",
                                         "btrfs" };

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        if (!strcmp(type, types[i])) {
            return true;
        }
    }
    return false;
}

/* White space and backslashes are written as \ and three octal digits. */
static bool unescape(char *out, const char *in, size_t length)
{
    size_t n = 0;

    for (size_t i = 0; i < length; n++) {
        if (n == PATH_MAX - 1) {
            return false;
        }
        if (in[i] == '\\' && length - i >= 4) {
            out[n] = (in[i + 1] - '0') << 6 | (in[i + 2] - '0') << 3 |
                     (in[i + 3] - '0');
            i += 4;
        } else {
            out[n] = in[i++];
        }
    }
    out[n] = 0;
    return true;
}

/* 36 35 98:0 /root /where options fields... - type source options */
bool mounts_parse(const char *line, struct mount *mount, char *where)
{
    const char *type = strstr(line, " - ");
    int start, end;

    mount->fd = -1;
    return type && sscanf(type, " - %31s", mount->type) == 1 &&
           sscanf(line, "%d %*d %u:%u %*s %n%*s%n", &mount->id,
                  &mount->major, &mount->minor, &start, &end) == 3 &&
           end > start &&
           line + end <= type && unescape(where, line + start, end - start);
}

static int open_root(const struct mount *mount, const char *where)
{
    int fd = open(where, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
    } u;
    int id;

    u.handle.handle_bytes = MAX_HANDLE_SZ;
    /* Something else may be mounted over it.  The device of stat() does not
     * show that: on btrfs it is the subvolume's, not the file system's. */
    if (fd >= 0 && (name_to_handle_at(fd, "", &u.handle, &id,
                                      AT_EMPTY_PATH) || id != mount->id)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool is_remote(const char *type)
{
    return !strncmp(type, "nfs", 3) || !strcmp(type, "cifs") ||
           !strncmp(type, "smb", 3) || !strcmp(type, "ceph") ||
           !strncmp(type, "fuse", 4) || !strcmp(type, "9p") ||
           !strcmp(type, "virtiofs");
}

/* A path below one of these may hang when it is opened. One at or below a
 * trigger of autofs does not: what is mounted there has covered it. */
static bool is_below(const char *where, char **remote, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        size_t length = strlen(remote[i]);

        if (!strncmp(where, remote[i], length) &&
            (where[length] == '/' || !where[length])) {
            return true;
        }
    }
    return false;
}

static bool add_name(char ***names, unsigned *count, const char *name)
{
    char **more = realloc(*names, (*count + 1) * sizeof(*more));

    if (!more) {
        return false;
    }
    *names = more;
    more[*count] = strdup(name);
    return more[*count] && ++*count;
}

void mounts_read(struct mounts *m, FILE *info)
{
    char *line = NULL, where[PATH_MAX], **remote = NULL;
    unsigned remotes = 0;
    size_t room = 0;

    m->count = 0;
    while (getline(&line, &room, info) > 0) {
        struct mount mount, *known = NULL;

        if (!mounts_parse(line, &mount, where)) {
            continue;
        }
        if (is_remote(mount.type) && !add_name(&remote, &remotes, where)) {
            break;
        }
        if (!mounts_can_map(mount.type) ||
            is_below(where, remote, remotes)) {
            continue;
        }
        for (unsigned i = 0; i < m->count; i++) {
            if (m->mount[i].major == mount.major &&
                m->mount[i].minor == mount.minor) {
                known = &m->mount[i];
            }
        }
        if (!known && m->count < MOUNTS_MAX) {
            known = &m->mount[m->count++];
            *known = mount;
        }
        if (known && known->fd < 0) {
            known->fd = open_root(known, where);
        }
    }
    while (remotes) {
        free(remote[--remotes]);
    }
    free(remote);
    free(line);
}

void mounts_find(struct mounts *m)
{
    FILE *info = fopen("/proc/self/mountinfo", "r");

    m->count = 0;
    if (info) {
        mounts_read(m, info);
        fclose(info);
    }
}

const struct mount *mounts_of(const struct mounts *m, unsigned major,
                              unsigned minor)
{
    for (unsigned i = 0; i < m->count; i++) {
        if (m->mount[i].major == major && m->mount[i].minor == minor) {
            return &m->mount[i];
        }
    }
    return NULL;
}
