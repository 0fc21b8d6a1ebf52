/*
 * Seeded mirror: bitmaps that clients send and get, see dedup-seed.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qemu/bitmap.h"
#include "qapi/error.h"
#include "block/block_int.h"
#include "block/dirty-bitmap.h"
#include "dedup-seed-int.h"

#define CHUNK   65536           /* of a bitmap, in bytes */

static bool is_memfd(int fd, Error **errp)
{
    /* Only files in memory have seals; others could hold up the main loop */
    if (fcntl(fd, F_GET_SEALS) < 0) {
        error_setg(errp, "A bitmap must be a memfd");
        return false;
    }
    return true;
}

static uint64_t granules(DedupSeed *seed)
{
    return DIV_ROUND_UP(seed->size, seed->granularity);
}

static uint64_t bitmap_bytes(DedupSeed *seed)
{
    return DIV_ROUND_UP(granules(seed), 8);
}

bool dedup_seed_watch_part(DedupSeed *seed, uint64_t *done, uint64_t most,
                           bool *more, Error **errp)
{
    uint64_t n = MIN(granules(seed) - *done, most);
    int64_t offset = *done * seed->granularity;

    if (!dedup_seed_is_watching(seed, errp)) {
        return false;
    }
    bdrv_set_dirty_bitmap(seed->bitmap, offset,
                          MIN(n * seed->granularity, seed->size - offset));
    *done += n;
    *more = *done < granules(seed);
    if (!*more) {
        seed->busy = NULL;
    }
    return true;
}

bool dedup_seed_arm_begin(DedupSeed *seed, int proven, uint64_t canary_offset,
                          Error **errp)
{
    struct stat st;

    if (!dedup_seed_is_free(seed, errp) || !is_memfd(proven, errp)) {
        return false;
    }
    if (seed->recorder) {
        error_setg(errp, "The watch of device '%s' only records writes: claim "
                   "it before its target is filled", seed->device);
        return false;
    }
    if (fstat(proven, &st) || st.st_size != bitmap_bytes(seed)) {
        error_setg(errp, "The bitmap of what is proven must have %" PRIu64
                   " bytes", bitmap_bytes(seed));
        return false;
    }
    if (!QEMU_IS_ALIGNED(canary_offset, DEDUP_SEED_CANARY) ||
        canary_offset > seed->size - DEDUP_SEED_CANARY) {
        error_setg(errp, "The canary must be at a multiple of %d in the disk",
                   DEDUP_SEED_CANARY);
        return false;
    }
    seed->busy = "armed";
    return true;
}

void dedup_seed_arm_give_up(DedupSeed *seed)
{
    seed->busy = NULL;
}

/* Runs of zeros in @map, the bits of @n granules from @first on */
static void set_not_proven(DedupSeed *seed, const unsigned long *map,
                           uint64_t first, uint64_t n)
{
    uint64_t end = 0, at;

    while ((at = find_next_zero_bit(map, n, end)) < n) {
        int64_t offset = (first + at) * seed->granularity;

        end = find_next_bit(map, n, at);
        bdrv_set_dirty_bitmap(seed->bitmap, offset,
                              MIN((end - at) * seed->granularity,
                                  seed->size - offset));
    }
}

bool dedup_seed_arm_part(DedupSeed *seed, int proven, uint64_t *done,
                         uint64_t most, bool *more, Error **errp)
{
    uint64_t n = MIN(granules(seed) - *done, most);
    size_t bytes = DIV_ROUND_UP(n, 8);
    g_autofree unsigned long *map = bitmap_new(n);
    g_autofree unsigned long *le = bitmap_new(n);

    if (!dedup_seed_is_watching(seed, errp)) {
        return false;
    }
    if (pread(proven, le, bytes, *done / 8) != bytes) {
        error_setg(errp, "Reading the bitmap of what is proven failed");
        return false;
    }
    bitmap_from_le(map, le, n);
    set_not_proven(seed, map, *done, n);
    *done += n;
    *more = *done < granules(seed);
    return true;
}

void dedup_seed_arm(DedupSeed *seed, uint64_t canary_offset,
                    const uint8_t *canary)
{
    bdrv_set_dirty_bitmap(seed->bitmap, canary_offset, DEDUP_SEED_CANARY);
    seed->canary_offset = canary_offset;
    memcpy(seed->canary, canary, DEDUP_SEED_CANARY);
    seed->proven = seed->size - dedup_seed_dirty_bytes(seed, seed->bitmap);
    seed->busy = NULL;
    dedup_seed_set_state(seed, DEDUP_SEED_ARMED, 0, NULL);
}

bool dedup_seed_write_dirty(DedupSeed *seed, int fd, Error **errp)
{
    g_autofree uint8_t *buf = g_malloc(CHUNK);
    uint64_t length = bitmap_bytes(seed);

    if (!dedup_seed_is_free(seed, errp) || !is_memfd(fd, errp)) {
        return false;
    }
    for (uint64_t done = 0; done < length; done += CHUNK) {
        uint64_t n = MIN(CHUNK, length - done);
        int64_t offset = done * 8 * seed->granularity;

        bdrv_dirty_bitmap_lock(seed->bitmap);
        bdrv_dirty_bitmap_serialize_part(
            seed->bitmap, buf, offset,
            MIN((int64_t)CHUNK * 8 * seed->granularity, seed->size - offset));
        bdrv_dirty_bitmap_unlock(seed->bitmap);
        if (pwrite(fd, buf, n, done) != n) {
            error_setg(errp, "Writing the bitmap of what is dirty failed");
            return false;
        }
    }
    return true;
}
