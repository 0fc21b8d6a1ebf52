/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "place.h"

#include <string.h>
#include <sys/ioctl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>

/* Shared by several files is as good as any. */
#define GOOD (FIEMAP_EXTENT_LAST | FIEMAP_EXTENT_MERGED | FIEMAP_EXTENT_SHARED)

void place_open(struct place *p, int fd)
{
    p->fd = fd;
    p->from = p->to = 0;
    p->count = p->at = 0;
}

static bool ask(struct place *p, uint64_t offset, uint64_t end)
{
    static union {
        struct fiemap map;
        char room[sizeof(struct fiemap) +
                  PLACE_MAX_EXTENTS * sizeof(struct fiemap_extent)];
    } u;
    const struct fiemap_extent *e = u.map.fm_extents;

    memset(&u.map, 0, sizeof(u.map));
    u.map.fm_start = offset;
    u.map.fm_length = end - offset;
    u.map.fm_extent_count = PLACE_MAX_EXTENTS;
    place_open(p, p->fd);
    if (ioctl(p->fd, FS_IOC_FIEMAP, &u.map) ||
        u.map.fm_mapped_extents > PLACE_MAX_EXTENTS) {
        return false;
    }
    p->from = offset;
    p->to = end;
    for (; p->count < u.map.fm_mapped_extents; p->count++, e++) {
        if (e->fe_length > INT64_MAX || e->fe_logical > INT64_MAX ||
            e->fe_physical > INT64_MAX) {
            return false;
        }
        p->extent[p->count] = (struct place_extent) {
            e->fe_logical, e->fe_length, e->fe_physical,
            !(e->fe_flags & ~GOOD),
        };
    }
    if (p->count == PLACE_MAX_EXTENTS && !(e[-1].fe_flags &
                                           FIEMAP_EXTENT_LAST)) {
        p->to = e[-1].fe_logical + e[-1].fe_length;
        /* One that makes no headway would be asked for ever. */
        return p->to > offset;
    }
    return true;
}

const struct place_extent *place_at(struct place *p, uint64_t offset,
                                    uint64_t end)
{
    while (offset < end) {
        if (offset < p->from || offset >= p->to) {
            if (!ask(p, offset, end)) {
                p->from = p->to = 0;
                return NULL;
            }
        }
        if (p->at && offset < p->extent[p->at - 1].start +
                              p->extent[p->at - 1].length) {
            p->at = 0;
        }
        for (; p->at < p->count; p->at++) {
            const struct place_extent *e = &p->extent[p->at];

            if (offset < e->start + e->length) {
                return e->start < end ? e : NULL;
            }
        }
        offset = p->to;
    }
    return NULL;
}

const char *place_elsewhere(int fd, bool xfs, enum listing_reason *reason)
{
    struct fsxattr attributes;
    int flags = 0;

    *reason = LISTING_WHY_PLACE;
    if (xfs ? ioctl(fd, FS_IOC_FSGETXATTR, &attributes) :
              ioctl(fd, FS_IOC_GETFLAGS, &flags)) {
        return "files whose attributes cannot be read";
    }
    if (xfs) {
        return attributes.fsx_xflags & FS_XFLAG_REALTIME ?
               "files in a real-time section" : NULL;
    }
    /* FIEMAP does not mark what fscrypt encrypts. */
    *reason = LISTING_WHY_ENCRYPTED;
    return flags & FS_ENCRYPT_FL ? "files that fscrypt encrypts" : NULL;
}
