/*
 * Seeded mirror: a mirror job that copies only what is not proven equal.
 *
 * The mechanism is described in block/dedup-seed.c.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef BLOCK_DEDUP_SEED_H
#define BLOCK_DEDUP_SEED_H

#include "block/block-common.h"
#include "block/graph-lock.h"

#define DEDUP_SEED_CANARY           512
#define DEDUP_SEED_RECORDER         32  /* characters */
#define DEDUP_SEED_GRANULARITY      32768
#define DEDUP_SEED_MIN_GRANULARITY  4096
#define DEDUP_SEED_MAX_GRANULARITY  (1024 * 1024)

typedef struct DedupSeed DedupSeed;

typedef enum DedupSeedState {
    DEDUP_SEED_WATCHING,        /* not armed: likewise */
    DEDUP_SEED_ARMED,           /* the next mirror job takes it */
    DEDUP_SEED_USED,            /* a mirror job has taken it */
    DEDUP_SEED_DROPPED,         /* in doubt: the next one copies everything */
} DedupSeedState;

typedef struct DedupSeedFigures {
    DedupSeedState state;
    const char *token, *device, *node;
    const char *reason, *recorder;      /* may be NULL */
    int64_t size;               /* bytes, like all that follows */
    uint32_t granularity;
    int64_t proven;             /* when it was armed */
    int64_t dirty;              /* what a mirror job would copy, or copied */
} DedupSeedFigures;

/* What follows is for the main loop, under the BQL. */

/*
 * Watch the node that guest device @device writes to, for the next mirror, or
 * for @recorder if it is not NULL.  The watch that the disk had for the same
 * is forgotten.  Returns the token, to be freed, or NULL, with an error, if the
 * disk cannot be watched.
 *
 * From here on writes are recorded, and a mirror that begins copies everything.
 * No other function takes the seed before the last part is done.
 */
char *dedup_seed_watch(BlockBackend *blk, const char *device,
                       uint32_t granularity, const char *recorder,
                       Error **errp);
/*
 * Make all of it dirty, which takes long for a large disk: in parts, between
 * which others have their turn, and may drop the seed.  *@done: granules, from
 * 0 on; @most: at once.
 */
bool dedup_seed_watch_part(DedupSeed *seed, uint64_t *done, uint64_t most,
                           bool *more, Error **errp);
/* The target of the next mirror is about to be filled */
bool dedup_seed_claim(DedupSeed *seed, Error **errp);
DedupSeed *dedup_seed_by_token(const char *token, Error **errp);
DedupSeed *dedup_seed_next(DedupSeed *seed);        /* NULL: the first one */
/* A range of whole granules is about to be read */
bool dedup_seed_clear(DedupSeed *seed, uint64_t offset, uint64_t bytes,
                      Error **errp);
/*
 * @proven: reads a bitmap of one bit for each granule, least significant
 * bit first, from its beginning; a memfd of just that length.  What it does
 * not call proven becomes dirty.  A large disk has many granules, so that is
 * done in parts, between which others have their turn, and may drop the seed.
 * Each part only makes more dirty, so one that is not the last does no harm.
 */
bool dedup_seed_arm_begin(DedupSeed *seed, int proven, uint64_t canary_offset,
                          Error **errp);
void dedup_seed_arm_give_up(DedupSeed *seed);
/* *@done: granules, from 0 on; @most: at once, a multiple of 8 */
bool dedup_seed_arm_part(DedupSeed *seed, int proven, uint64_t *done,
                         uint64_t most, bool *more, Error **errp);
void dedup_seed_arm(DedupSeed *seed, uint64_t canary_offset,
                    const uint8_t *canary);
/* Writes a bitmap like that of the granules that are dirty now */
bool dedup_seed_write_dirty(DedupSeed *seed, int fd, Error **errp);
/* Looks for doubts first */
void dedup_seed_figures(DedupSeed *seed, DedupSeedFigures *figures);
void dedup_seed_forget(DedupSeed *seed);
/* All that no job has taken */
void dedup_seed_drop_all(const char *reason);

/* Hooks in block.c, block/dirty-bitmap.c and block/snapshot.c */

/* @bs holds something else now, or is about to be freed.  BQL. */
void dedup_seed_drop_node(BlockDriverState *bs, const char *reason);
void dedup_seed_close(BlockDriverState *bs);
/* Any thread */
void dedup_seed_resized(BlockDriverState *bs);

/* Hooks in block/mirror.c */

/* Of the seed that a mirror of @bs would take, or 0.  BQL. */
uint32_t dedup_seed_granularity(BlockDriverState *bs);
/* A mirror job begins.  NULL: nobody has filled its target.  BQL. */
DedupSeed *dedup_seed_take(BlockDriverState *bs, uint32_t granularity);
/* Make what is to be copied dirty */
void coroutine_fn GRAPH_UNLOCKED
dedup_seed_co_apply(DedupSeed *seed, BdrvChild *source, BlockBackend *target,
                    BdrvDirtyBitmap *dirty, int64_t length);
/* The job is over.  @seed may be NULL.  BQL. */
void dedup_seed_end(DedupSeed *seed);

#endif
