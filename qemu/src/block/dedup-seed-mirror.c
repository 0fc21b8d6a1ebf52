/*
 * Seeded mirror: what a mirror job does with a seed, see dedup-seed.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/coroutine.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/timer.h"
#include "block/block_int.h"
#include "block/dirty-bitmap.h"
#include "system/block-backend.h"
#include "dedup-seed-int.h"

#define SAMPLES         32              /* blocks compared before a job */
#define SAMPLE_BYTES    4096
#define WRITE_POLLS     50
#define WRITE_POLL_NS   (10 * SCALE_MS)

static bool GRAPH_RDLOCK is_below(BlockDriverState *bs, BlockDriverState *top)
{
    while (top && top != bs) {
        top = bdrv_filter_or_cow_bs(top);
    }
    return top;
}

/*
 * Of a disk that a mirror of @bs is about, and that no other job has.  Nobody
 * has filled a target for one that only records writes.
 */
static DedupSeed *GRAPH_RDLOCK seed_of_mirror(BlockDriverState *bs)
{
    DedupSeed *seed;

    for (seed = dedup_seed_next(NULL); seed; seed = dedup_seed_next(seed)) {
        if (!seed->job && !seed->recorder &&
            ((seed->bs && is_below(seed->bs, bs)) ||
             is_below(bs, dedup_seed_top(seed)))) {
            return seed;
        }
    }
    return NULL;
}

uint32_t dedup_seed_granularity(BlockDriverState *bs)
{
    DedupSeed *seed;

    GLOBAL_STATE_CODE();
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    seed = seed_of_mirror(bs);
    return seed ? seed->granularity : 0;
}

static const char *GRAPH_RDLOCK job_doubt(DedupSeed *seed,
                                          uint32_t granularity)
{
    const char *doubt;

    if (seed->state == DEDUP_SEED_USED) {
        return "a mirror job has used it before";
    }
    doubt = dedup_seed_doubt(seed);
    if (!doubt && seed->state == DEDUP_SEED_WATCHING) {
        return "the mirror job began before the disk was armed";
    }
    if (!doubt && granularity != seed->granularity) {
        return "the mirror job has another granularity";
    }
    return doubt;
}

static void seed_say(DedupSeed *seed)
{
    info_report("Mirror of disk '%s' copies everything: %s", seed->device,
                seed->reason);
}

DedupSeed *dedup_seed_take(BlockDriverState *bs, uint32_t granularity)
{
    const char *doubt;
    DedupSeed *seed;

    GLOBAL_STATE_CODE();
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    seed = seed_of_mirror(bs);
    if (!seed) {
        return NULL;
    }
    seed->job = true;
    if (seed->state != DEDUP_SEED_DROPPED) {
        doubt = job_doubt(seed, granularity);
        if (!doubt) {
            dedup_seed_set_state(seed, DEDUP_SEED_USED, seed->size,
                                 "the mirror job has not begun to copy");
            return seed;
        }
        dedup_seed_drop(seed, doubt);
    }
    seed_say(seed);
    seed->everything = true;
    return seed;
}

static bool coroutine_fn GRAPH_UNLOCKED
has_canary(DedupSeed *seed, BlockBackend *target)
{
    uint8_t *found = blk_blockalign(target, DEDUP_SEED_CANARY);
    bool same = blk_co_pread(target, seed->canary_offset, DEDUP_SEED_CANARY,
                             found, 0) >= 0 &&
                !memcmp(found, seed->canary, DEDUP_SEED_CANARY);

    qemu_vfree(found);
    return same;
}

/* Somewhere in a granule that counts as equal, or -1 */
static int64_t sample_offset(DedupSeed *seed)
{
    uint64_t random = (uint64_t)g_random_int() << 32 | g_random_int();
    int64_t start = QEMU_ALIGN_DOWN(random % seed->size, seed->granularity);
    int64_t offset;

    bdrv_dirty_bitmap_lock(seed->bitmap);
    offset = bdrv_dirty_bitmap_next_zero(seed->bitmap, start,
                                         seed->size - start);
    bdrv_dirty_bitmap_unlock(seed->bitmap);
    if (offset < 0) {
        return -1;
    }
    return offset + QEMU_ALIGN_DOWN(g_random_int() % seed->granularity,
                                    SAMPLE_BYTES);
}

/* The bit of a write that was under way is set when the write completes */
static bool coroutine_fn becomes_dirty(DedupSeed *seed, int64_t offset)
{
    for (int i = 0; i < WRITE_POLLS; i++) {
        if (bdrv_dirty_bitmap_get(seed->bitmap, offset)) {
            return true;
        }
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, WRITE_POLL_NS);
    }
    return false;
}

/* A sample of what counts as equal is equal, or was written to meanwhile */
static bool coroutine_fn GRAPH_UNLOCKED
samples_hold(DedupSeed *seed, BdrvChild *source, BlockBackend *target)
{
    uint8_t *here = blk_blockalign(target, SAMPLE_BYTES);
    uint8_t *there = blk_blockalign(target, SAMPLE_BYTES);
    bool same = true;

    for (int i = 0; same && i < SAMPLES; i++) {
        int64_t offset = sample_offset(seed);
        int64_t bytes = MIN(SAMPLE_BYTES, seed->size - offset);

        if (offset < 0 || bytes <= 0) {
            continue;
        }
        WITH_GRAPH_RDLOCK_GUARD() {
            same = bdrv_co_pread(source, offset, bytes, here, 0) >= 0;
        }
        same = same && blk_co_pread(target, offset, bytes, there, 0) >= 0 &&
               (!memcmp(here, there, bytes) || becomes_dirty(seed, offset));
    }
    qemu_vfree(here);
    qemu_vfree(there);
    return same;
}

void coroutine_fn GRAPH_UNLOCKED
dedup_seed_co_apply(DedupSeed *seed, BdrvChild *source, BlockBackend *target,
                    BdrvDirtyBitmap *dirty, int64_t length)
{
    const char *doubt = NULL;

    if (!seed->everything) {
        if (qatomic_read(&seed->resized) || seed->size != length) {
            doubt = "the disk was resized";
        } else if (!has_canary(seed, target)) {
            doubt = "the target is not the one that was filled";
        } else if (!samples_hold(seed, source, target)) {
            doubt = "a block that was proven differs in the target";
        }
        if (doubt) {
            dedup_seed_set_state(seed, DEDUP_SEED_DROPPED, seed->size, doubt);
            seed_say(seed);
        }
    }
    if (seed->everything || doubt) {
        bdrv_set_dirty_bitmap(dirty, 0, length);
    } else {
        bdrv_dirty_bitmap_merge_internal(dirty, seed->bitmap, NULL, true);
        dedup_seed_set_state(seed, DEDUP_SEED_USED,
                             dedup_seed_dirty_bytes(seed, dirty), NULL);
    }
}

void dedup_seed_end(DedupSeed *seed)
{
    if (seed) {
        seed->job = false;
        dedup_seed_release(seed);
        if (seed->forgotten) {
            dedup_seed_free(seed);
        }
    }
}
