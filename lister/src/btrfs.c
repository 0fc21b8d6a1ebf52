/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The results of BTRFS_IOC_TREE_SEARCH, one behind the other; those of the
 * chunk tree ascend by logical address
 *     0   8  transaction, which does not matter here
 *     8   8  key: object, 256
 *    16   8  key: logical address of the chunk
 *    24   4  key: type, 228
 *    28   4  length of the item
 *    32   .  item
 *
 *   item: a chunk, little endian
 *     0   8  length, bytes
 *     8  16  owner, length of stripes: they do not matter with one device
 *    24   8  type: TYPE_*, and a bit of its profile (none: SINGLE)
 *    32  12  alignments, sector size
 *    44   2  number of stripes: 1, or 2 with the profile DUP
 *    46   2  number of sub-stripes
 *    48   .  stripes
 *
 *   stripe: where the chunk is, or with DUP a copy of it
 *     0   8  number of the device
 *     8   8  offset on the device, bytes
 *    16  16  UUID of the device
 */
#define _GNU_SOURCE
#include "btrfs.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <linux/btrfs.h>

#include "bytes.h"
#include "sysfs.h"

#define RESULT_LEN 32
#define CHUNK_LEN 48
#define STRIPE_LEN 32
#define CHUNK_TREE 3
#define CHUNK_OBJECT 256
#define CHUNK_TYPE 228
/* Data, system, metadata */
#define TYPE_CONTENT UINT64_C(7)
#define TYPE_DUP (UINT64_C(1) << 5)
/* Features with which chunks are all that tells where bytes are: those up to
 * zones, and simple quotas.  There are others: RAID stripe tree, remap tree. */
#define FEATURES (UINT64_C(0x1fff) | UINT64_C(1) << 16)
/* Files may be where a block of a tree was, while it is cached. */
#define MIXED (UINT64_C(1) << 2)
/* Bytes of a block of a tree */
#define MIN_BLOCK 4096
#define MAX_BLOCK (64 << 10)
/* A chunk is a GiB or so.  More are not read. */
#define MAX_CHUNKS (1 << 16)
#define UUID "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-" \
             "%02x%02x%02x%02x%02x%02x"
#define UUID_TEXT 37

static const char *parse_chunk(struct btrfs_chunks *c, uint64_t start,
                               const uint8_t *item, uint32_t size)
{
    uint64_t length, type;
    uint16_t stripes;

    if (size < CHUNK_LEN + STRIPE_LEN) {
        return "chunk that is malformed";
    }
    length = u64(item);
    type = u64(item + 24);
    memcpy(&stripes, item + 44, 2);
    /* A bit that is not known may be a profile, or another place. */
    if (type & ~(TYPE_CONTENT | TYPE_DUP)) {
        return "profile other than single and dup";
    }
    if (stripes != (type & TYPE_DUP ? 2 : 1) ||
        size != CHUNK_LEN + STRIPE_LEN * (uint32_t)stripes || !length ||
        start < c->end || start > INT64_MAX || length > INT64_MAX - start) {
        return "chunk that is malformed";
    }
    if (u64(item + CHUNK_LEN) != c->number) {
        return "chunk on another device";
    }
    c->end = start + length;
    if (++c->count > MAX_CHUNKS) {
        return "too many chunks";
    }
    /* The first of two copies: they are the same. */
    return disks_add_part(c->disks, c->device, start, length, c->below,
                          u64(item + CHUNK_LEN + 8)) ? NULL :
           "chunk beyond its device, or too many";
}

const char *btrfs_parse(struct btrfs_chunks *c, const uint8_t *buffer,
                        size_t size, uint32_t items)
{
    size_t at = 0;

    while (items--) {
        const uint8_t *result = buffer + at;
        uint32_t length;
        const char *why;

        if (size - at < RESULT_LEN) {
            return "chunk that is malformed";
        }
        at += RESULT_LEN;
        length = u32(result + 28);
        if (length > size - at || u64(result + 8) != CHUNK_OBJECT ||
            u32(result + 24) != CHUNK_TYPE) {
            return "chunk that is malformed";
        }
        why = parse_chunk(c, u64(result + 16), result + RESULT_LEN, length);
        if (why) {
            return why;
        }
        at += length;
    }
    return NULL;
}

static const char *read_chunks(struct btrfs_chunks *c, int fd)
{
    struct btrfs_ioctl_search_args search;
    const char *why = NULL;

    do {
        search = (struct btrfs_ioctl_search_args) { .key = {
            .tree_id = CHUNK_TREE,
            .min_objectid = CHUNK_OBJECT, .max_objectid = CHUNK_OBJECT,
            .min_type = CHUNK_TYPE, .max_type = CHUNK_TYPE,
            .min_offset = c->end, .max_offset = UINT64_MAX,
            .max_transid = UINT64_MAX, .nr_items = UINT32_MAX,
        } };
        if (ioctl(fd, BTRFS_IOC_TREE_SEARCH, &search)) {
            return "chunks that cannot be read";
        }
        why = btrfs_parse(c, (const uint8_t *)search.buf, sizeof(search.buf),
                          search.key.nr_items);
    } while (!why && search.key.nr_items);
    return why ? why : c->count ? NULL : "no chunks";
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The devices it has, as block devices of the kernel; the only one's name.
 * The name that btrfs itself shows may be an old one. */
static int count_devices(const char *id, char *name, size_t size)
{
    char path[PATH_MAX];
    struct dirent **names;
    int count;

    snprintf(path, sizeof(path), "%s/sys/fs/btrfs/%s/devices", sysfs_root,
             id);
    count = scandir(path, &names, is_visible, alphasort);
    for (int i = 0; i < count; i++) {
        snprintf(name, size, "%s", names[i]->d_name);
        free(names[i]);
    }
    if (count >= 0) {
        free(names);
    }
    return count;
}

/* NULL, or why not */
static const char *find_chunks(struct btrfs_chunks *c, int fd)
{
    struct btrfs_ioctl_fs_info_args info = { 0 };
    struct btrfs_ioctl_feature_flags features;
    const __u8 *u = info.fsid;
    char id[UUID_TEXT], name[NAME_MAX + 1] = "", text[32];
    unsigned major, minor;

    if (ioctl(fd, BTRFS_IOC_FS_INFO, &info)) {
        return "devices that cannot be asked for";
    }
    snprintf(id, sizeof(id), UUID, u[0], u[1], u[2], u[3], u[4], u[5], u[6],
             u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
    /* The kernel's own list has those of a seed as well. */
    if (info.num_devices != 1 || count_devices(id, name, sizeof(name)) != 1) {
        return "not on exactly one device";
    }
    snprintf(c->device->name, sizeof(c->device->name), "btrfs on %.23s",
             name);
    listing_clean(c->device->name);
    if (ioctl(fd, BTRFS_IOC_GET_FEATURES, &features) ||
        features.incompat_flags & ~FEATURES) {
        return "features that are not known";
    }
    if (!sysfs_text(text, sizeof(text), "/sys/fs/btrfs/%s/devices/%s/dev",
                    id, name) ||
        sscanf(text, "%u:%u", &major, &minor) != 2) {
        return "device that cannot be read";
    }
    c->below = disks_device(c->disks, major, minor);
    if (!c->below) {
        return "device below it is not known";
    }
    if (!c->below->count) {
        return c->below->why;
    }
    if (info.nodesize < MIN_BLOCK || info.nodesize > MAX_BLOCK ||
        info.nodesize & (info.nodesize - 1)) {
        return "tree blocks of a strange size";
    }
    if (!(features.incompat_flags & MIXED)) {
        c->device->block = info.nodesize;
    }
    c->number = info.max_id;
    return read_chunks(c, fd);
}

bool btrfs_find(struct disks *d, const struct mounts *m)
{
    bool found = false;

    for (unsigned i = 0; i < m->count; i++) {
        const struct mount *mount = &m->mount[i];
        struct btrfs_chunks c = { .disks = d };
        const char *why;

        if (strcmp(mount->type, "btrfs") || mount->fd < 0) {
            continue;
        }
        c.device = disks_add(d, mount->major, mount->minor, "btrfs");
        if (!c.device) {
            break;
        }
        why = find_chunks(&c, mount->fd);
        if (why) {
            disks_refuse(c.device, c.below && !c.below->count ?
                         c.below->reason : LISTING_WHY_DEVICE, why);
            d->pieces = c.device->first;
        }
        found = found || !why;
    }
    return found;
}
