/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block devices of the guest, and where each lies on which disk.
 *
 * A device is a list of pieces, each a part of a disk: a disk is one piece
 * of itself, a partition one of its disk, a linear device of the device
 * mapper (LVM) one for each of its segments and of what is below, a RAID1
 * of md part of one of its members.  btrfs counts as a device as well, whose
 * bytes are those at its logical addresses (btrfs.h).  All is found before
 * privileges are dropped, from sysfs and the device mapper.
 */
#ifndef DISKS_H
#define DISKS_H

#include <stdbool.h>
#include <stdint.h>

#include "budget.h"
#include "listing.h"

#define DISKS_MAX_DEVICES 1024
#define DISKS_MAX_PIECES 8192

struct disks_piece {
    uint64_t start, length;     /* bytes, on the device */
    uint64_t offset;            /* bytes, on the disk */
    uint32_t disk;
};

struct disks_device {
    unsigned major, minor;
    bool resolved, busy;
    uint32_t first, count;              /* in pieces, which ascend by start;
                                         * none: see why */
    uint64_t size;                      /* bytes */
    uint32_t block;                     /* of trees of btrfs, bytes; 0: they
                                         * cannot be mapped */
    enum listing_reason reason;
    char name[LISTING_NAME_LEN + 1];
    char why[96];
};

struct disks {
    uint32_t devices, pieces, disks;
    struct disks_device device[DISKS_MAX_DEVICES];
    struct disks_piece piece[DISKS_MAX_PIECES];
    struct listing_disk disk[LISTING_MAX_DISKS];
};

void disks_find(struct disks *d);
/* NULL: there is no such device */
const struct disks_device *disks_device(const struct disks *d,
                                        unsigned major, unsigned minor);
/*
 * Where [offset, offset + length) of a device is.  Returns how many of
 * these bytes are in one piece there, 0: nowhere.
 */
uint64_t disks_place(const struct disks *d, const struct disks_device *device,
                     uint64_t offset, uint64_t length, uint32_t *disk,
                     uint64_t *at);

/* One more device, without pieces; NULL: no room */
struct disks_device *disks_add(struct disks *d, unsigned major,
                               unsigned minor, const char *name);
/*
 * [offset, offset + length) of `below` is [start, ...) of `v`, the device
 * added last.  False: `below` does not have that, or no room.
 */
bool disks_add_part(struct disks *d, struct disks_device *v, uint64_t start,
                    uint64_t length, const struct disks_device *below,
                    uint64_t offset);
/* The device has no pieces, and why */
void disks_refuse(struct disks_device *v, enum listing_reason reason,
                  const char *why);

#endif
