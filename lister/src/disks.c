/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "disks.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "identity.h"
#include "mapper.h"
#include "mirror.h"
#include "sysfs.h"

#define MAX_DEPTH 8
#define SECTOR LISTING_SECTOR

static void resolve(struct disks *d, struct disks_device *v, int depth);

static struct disks_device *find(const struct disks *d, unsigned major,
                                 unsigned minor)
{
    for (uint32_t i = 0; i < d->devices; i++) {
        const struct disks_device *v = &d->device[i];

        if (v->major == major && v->minor == minor) {
            return (struct disks_device *)v;
        }
    }
    return NULL;
}

const struct disks_device *disks_device(const struct disks *d,
                                        unsigned major, unsigned minor)
{
    return find(d, major, minor);
}

void disks_refuse(struct disks_device *v, enum listing_reason reason,
                  const char *why)
{
    v->reason = reason;
    /* A device upon itself has the reason already. */
    if (why != v->why) {
        snprintf(v->why, sizeof(v->why), "%s", why);
    }
    v->count = 0;
}

/* Appends pieces to the device that is being resolved, the last one */
static bool add_piece(struct disks *d, struct disks_device *v,
                      const struct disks_piece *piece)
{
    struct disks_piece *last = v->count ? &d->piece[d->pieces - 1] : NULL;

    if (last && last->disk == piece->disk &&
        last->start + last->length == piece->start &&
        last->offset + last->length == piece->offset) {
        last->length += piece->length;
        return true;
    }
    if (d->pieces == DISKS_MAX_PIECES) {
        return false;
    }
    d->piece[d->pieces++] = *piece;
    v->count++;
    return true;
}

bool disks_add_part(struct disks *d, struct disks_device *v, uint64_t start,
                    uint64_t length, const struct disks_device *below,
                    uint64_t offset)
{
    while (length) {
        struct disks_piece piece = { .start = start };

        piece.length = disks_place(d, below, offset, length, &piece.disk,
                                   &piece.offset);
        if (!piece.length || !add_piece(d, v, &piece)) {
            return false;
        }
        start += piece.length;
        offset += piece.length;
        length -= piece.length;
    }
    return true;
}

static void resolve_mapped(struct disks *d, struct disks_device *v, int depth)
{
    struct mapper_target *targets = calloc(MAPPER_MAX_TARGETS,
                                           sizeof(*targets));
    char why[96];
    int count;

    if (!targets) {
        disks_refuse(v, LISTING_WHY_LIMIT, "no memory");
        return;
    }
    count = mapper_table(v->major, v->minor, targets, why);
    if (count <= 0) {
        disks_refuse(v, strstr(why, "crypt") ? LISTING_WHY_ENCRYPTED :
               LISTING_WHY_DEVICE, why);
    }
    /* What is below first: the pieces of a device lie together. */
    for (int i = 0; i < count; i++) {
        struct disks_device *below = find(d, targets[i].major,
                                          targets[i].minor);

        if (!below) {
            disks_refuse(v, LISTING_WHY_DEVICE, "device below it is not known");
            count = -1;
        } else {
            resolve(d, below, depth + 1);
            if (!below->count) {
                disks_refuse(v, below->reason, below->why);
                count = -1;
            }
        }
    }
    v->first = d->pieces;
    for (int i = 0; i < count; i++) {
        const struct mapper_target *t = &targets[i];

        if (t->start > INT64_MAX / SECTOR || t->length > INT64_MAX / SECTOR ||
            t->offset > INT64_MAX / SECTOR ||
            !disks_add_part(d, v, t->start * SECTOR, t->length * SECTOR,
                      find(d, t->major, t->minor), t->offset * SECTOR)) {
            disks_refuse(v, LISTING_WHY_DEVICE, "device mapper table that does "
                   "not fit the devices below");
            d->pieces = v->first;
            break;
        }
    }
    free(targets);
}

static void resolve_partition(struct disks *d, struct disks_device *v,
                              int depth)
{
    struct disks_device *whole;
    unsigned major, minor;
    uint64_t start;
    char text[32];

    if (!sysfs_number(&start, "/sys/dev/block/%u:%u/start", v->major,
                      v->minor) ||
        !sysfs_text(text, sizeof(text), "/sys/dev/block/%u:%u/../dev",
                    v->major, v->minor) ||
        sscanf(text, "%u:%u", &major, &minor) != 2 ||
        !(whole = find(d, major, minor)) || start > INT64_MAX / SECTOR) {
        disks_refuse(v, LISTING_WHY_DEVICE, "partition of an unknown disk");
        return;
    }
    resolve(d, whole, depth + 1);
    if (!whole->count) {
        disks_refuse(v, whole->reason, whole->why);
        return;
    }
    v->first = d->pieces;
    if (!disks_add_part(d, v, 0, v->size, whole, start * SECTOR)) {
        disks_refuse(v, LISTING_WHY_DEVICE, "partition beyond its disk");
        d->pieces = v->first;
    }
}

static void resolve_mirror(struct disks *d, struct disks_device *v, int depth)
{
    struct disks_device *below;
    struct mirror_member member;
    char why[MIRROR_WHY];

    if (!mirror_member(v->major, v->minor, &member, why)) {
        disks_refuse(v, LISTING_WHY_DEVICE, why);
        return;
    }
    below = find(d, member.major, member.minor);
    if (!below) {
        disks_refuse(v, LISTING_WHY_DEVICE, "software RAID on an unknown device");
        return;
    }
    resolve(d, below, depth + 1);
    if (!below->count) {
        disks_refuse(v, below->reason, below->why);
        return;
    }
    v->first = d->pieces;
    if (!disks_add_part(d, v, 0, v->size, below, member.offset)) {
        disks_refuse(v, LISTING_WHY_DEVICE, "software RAID beyond its member");
        d->pieces = v->first;
    }
}

static void resolve_disk(struct disks *d, struct disks_device *v)
{
    struct disks_piece piece = { .length = v->size, .disk = d->disks };
    struct listing_disk *disk = &d->disk[d->disks];
    enum listing_reason reason;
    const char *why;

    if (d->disks == LISTING_MAX_DISKS) {
        disks_refuse(v, LISTING_WHY_LIMIT, "more disks than a listing holds");
        return;
    }
    memset(disk, 0, sizeof(*disk));
    why = identity_read(disk, v->major, v->minor, &reason);
    disk->size = v->size;
    if (why) {
        disks_refuse(v, reason, why);
        return;
    }
    v->first = d->pieces;
    if (add_piece(d, v, &piece)) {
        d->disks++;
    }
}

static void resolve(struct disks *d, struct disks_device *v, int depth)
{
    char base[48];

    if (v->resolved) {
        return;
    }
    if (v->busy || depth > MAX_DEPTH) {
        disks_refuse(v, LISTING_WHY_DEVICE, "devices upon each other");
        return;
    }
    v->busy = true;
    snprintf(base, sizeof(base), "/sys/dev/block/%u:%u", v->major, v->minor);
    if (!v->size) {
        disks_refuse(v, LISTING_WHY_DEVICE, "device without a size");
    } else if (sysfs_exists("%s/partition", base)) {
        resolve_partition(d, v, depth);
    } else if (sysfs_exists("%s/dm", base)) {
        resolve_mapped(d, v, depth);
    } else if (sysfs_exists("%s/md", base)) {
        resolve_mirror(d, v, depth);
    } else if (sysfs_exists("%s/loop", base)) {
        disks_refuse(v, LISTING_WHY_DEVICE, "loop device");
    } else if (sysfs_exists("%s/bcache", base)) {
        disks_refuse(v, LISTING_WHY_DEVICE, "bcache");
    } else {
        resolve_disk(d, v);
    }
    v->resolved = true;
}

struct disks_device *disks_add(struct disks *d, unsigned major,
                               unsigned minor, const char *name)
{
    struct disks_device *v = &d->device[d->devices];

    if (d->devices == DISKS_MAX_DEVICES) {
        return NULL;
    }
    *v = (struct disks_device) {
        .major = major, .minor = minor, .first = d->pieces,
    };
    snprintf(v->name, sizeof(v->name), "%.32s", name);
    listing_clean(v->name);
    d->devices++;
    return v;
}

static void add_device(struct disks *d, const char *name)
{
    struct disks_device *v;
    unsigned major, minor;
    uint64_t sectors;
    char text[32];

    if (name[0] == '.' ||
        !sysfs_text(text, sizeof(text), "/sys/class/block/%s/dev", name) ||
        sscanf(text, "%u:%u", &major, &minor) != 2) {
        return;
    }
    v = disks_add(d, major, minor, name);
    if (v && sysfs_number(&sectors, "/sys/class/block/%s/size", name) &&
        sectors <= INT64_MAX / SECTOR) {
        v->size = sectors * SECTOR;
    }
}

void disks_find(struct disks *d)
{
    struct dirent **names;
    char path[PATH_MAX];
    int count;

    snprintf(path, sizeof(path), "%s/sys/class/block", sysfs_root);
    /* In the order of their names, so that two listings have the same one */
    count = scandir(path, &names, NULL, alphasort);
    memset(d, 0, sizeof(*d));
    for (int i = 0; i < count; i++) {
        add_device(d, names[i]->d_name);
        free(names[i]);
    }
    if (count >= 0) {
        free(names);
    }
    for (uint32_t i = 0; i < d->devices; i++) {
        resolve(d, &d->device[i], 0);
    }
}

uint64_t disks_place(const struct disks *d, const struct disks_device *device,
                     uint64_t offset, uint64_t length, uint32_t *disk,
                     uint64_t *at)
{
    const struct disks_piece *p = &d->piece[device->first];
    uint32_t low = 0, high = device->count;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (p[middle].start > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (!low || offset - p[low - 1].start >= p[low - 1].length) {
        return 0;
    }
    p += low - 1;
    *disk = p->disk;
    *at = p->offset + (offset - p->start);
    return length < p->length - (offset - p->start) ? length :
           p->length - (offset - p->start);
}
