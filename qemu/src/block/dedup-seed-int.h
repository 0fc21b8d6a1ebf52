/*
 * Seeded mirror: what its files share
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef BLOCK_DEDUP_SEED_INT_H
#define BLOCK_DEDUP_SEED_INT_H

#include "qemu/queue.h"
#include "block/dedup-seed.h"

struct DedupSeed {
    QLIST_ENTRY(DedupSeed) next;
    char *token, *device, *node;
    char *recorder;             /* NULL: it is for a mirror */
    DeviceState *dev;           /* only compared */
    BlockDriverState *bs;       /* NULL: it was closed */
    BdrvDirtyBitmap *bitmap;    /* NULL: released */
    char *layers;               /* below @bs when it was first watched */
    int64_t size;
    uint32_t granularity;
    bool resized;               /* atomic: any thread */
    bool job;                   /* belongs to a job, until it is over */
    bool everything;            /* the job copies everything */
    bool forgotten;
    const char *busy;           /* with what, or NULL: takes no commands */
    int64_t proven;
    int64_t canary_offset;
    uint8_t canary[DEDUP_SEED_CANARY];

    /* Written by a job's coroutine too: under the lock */
    DedupSeedState state;
    int64_t dirty;              /* valid if USED, or there is no bitmap */
    char *reason;
};

/* Any thread: takes the lock */
void dedup_seed_set_state(DedupSeed *seed, DedupSeedState state,
                          int64_t dirty, const char *reason);
/* The last granule may be shorter than the others */
int64_t dedup_seed_dirty_bytes(DedupSeed *seed, BdrvDirtyBitmap *bitmap);

/* What follows is for the main loop, under the BQL. */

/* Stop recording */
void dedup_seed_release(DedupSeed *seed);
void dedup_seed_drop(DedupSeed *seed, const char *reason);
void dedup_seed_free(DedupSeed *seed);
/* False, with an error, if it is in doubt or armed */
bool dedup_seed_is_watching(DedupSeed *seed, Error **errp);
/* And all of it has been made dirty, and nobody is about to arm it */
bool dedup_seed_is_free(DedupSeed *seed, Error **errp);
/* The node on top of the disk of the seed's device, or NULL */
BlockDriverState *dedup_seed_top(DedupSeed *seed);
/* Why a mirror had better copy everything, or NULL */
const char *GRAPH_RDLOCK dedup_seed_doubt(DedupSeed *seed);

#endif
