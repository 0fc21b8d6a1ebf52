/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the bytes of an open file are on its device: the file system's own
 * answer (FIEMAP), asked for no more than is wanted, as what is asked for
 * may have to be read from disk.
 */
#ifndef PLACE_H
#define PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "listing-format.h"

#define PLACE_MAX_EXTENTS 256

struct place_extent {
    uint64_t start, length;     /* bytes of the file */
    uint64_t offset;            /* on the device */
    bool usable;                /* the device holds the file's bytes there */
};

struct place {
    int fd;
    uint64_t from, to;          /* what the extents below say all about */
    unsigned count, at;
    struct place_extent extent[PLACE_MAX_EXTENTS];
};

void place_open(struct place *p, int fd);
/*
 * The extent at, or the first one behind, byte `offset` of the file.  When
 * the file system has to be asked, it is about [offset, end).  NULL: there
 * is none before `end`, or it does not say.
 */
const struct place_extent *place_at(struct place *p, uint64_t offset,
                                    uint64_t end);
/* Why the device does not hold the bytes of a file of ext4, or of XFS, where
 * FIEMAP says; NULL: it does, and the reason means nothing */
const char *place_elsewhere(int fd, bool xfs, enum listing_reason *reason);

#endif
