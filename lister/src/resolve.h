/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From runs (pages of files) to extents (bytes of disks), one owner after
 * the other, then into the listing in the order of memory.
 *
 * A run may lie in many places on disks. If they do not fit into the table,
 * only the first half of the runs is resolved and listed, or a quarter, and
 * the rest afterwards: memory is bounded, the listing is not.
 */
#ifndef RESOLVE_H
#define RESOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "disks.h"
#include "listing.h"
#include "mounts.h"
#include "place.h"
#include "scan.h"

/* A part of a run that lies on a disk in one piece. Those of a run are
 * neighbours in the table. */
struct part {
    uint64_t offset;            /* on the disk, bytes */
    uint32_t run;
    uint32_t page, pages;       /* from the run's start; of 4096 bytes */
    uint8_t disk, kind;
};

struct resolve {
    struct scan *scan;
    const struct disks *disks;
    const struct mounts *mounts;
    struct listing *listing;
    struct budget *budget;
    struct listing_figures *figures;
    struct part *part;
    uint32_t *order;            /* numbers of runs, by owner and index */
    uint32_t *spare;            /* to sort them; then: first part of a run */
    uint32_t parts, room;
    bool full;                  /* there was no room for a part */
    struct place place;
    /* As they were before the runs that are being resolved */
    struct listing_figures figures_before;
    struct listing_skips skips_before;
};

bool resolve_init(struct resolve *r, struct scan *s, size_t part_bytes);
/* Lists what the scan has collected; the runs are used up. */
void resolve_runs(struct resolve *r);

/* Sorts numbers of runs by the index of the run; for tests */
void resolve_sort(const struct run *run, uint32_t *order, uint32_t *spare,
                  uint32_t count);

#endif
