/* SPDX-License-Identifier: Apache-2.0 */
/*
 * btrfs: what its files and trees have are logical addresses, in chunks, each
 * of which lies somewhere on a device.  With the chunks as its pieces btrfs is
 * a device like others (disks.h), with the number that mountinfo shows.
 */
#ifndef BTRFS_H
#define BTRFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disks.h"
#include "mounts.h"

/* Adds each that is mounted to the devices; true: one can be mapped */
bool btrfs_find(struct disks *d, const struct mounts *m);

/* What is being read of one */
struct btrfs_chunks {
    struct disks *disks;
    struct disks_device *device;        /* btrfs; it was added last */
    const struct disks_device *below;   /* the device it is on */
    uint64_t number;                    /* of that, as btrfs counts them */
    uint64_t end;                       /* logical, of the last chunk */
    uint64_t count;
};

/*
 * Adds the chunks in `items` results of BTRFS_IOC_TREE_SEARCH.  NULL when all
 * is well, else why btrfs cannot be mapped; for tests.
 */
const char *btrfs_parse(struct btrfs_chunks *c, const uint8_t *buffer,
                        size_t size, uint32_t items);

#endif
