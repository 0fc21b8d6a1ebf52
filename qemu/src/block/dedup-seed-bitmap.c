/*
 * Seeded mirror: bitmaps that clients send and get, see dedup-seed.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
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

static uint64_t bitmap_bytes(DedupSeed *seed)
{
    return DIV_ROUND_UP(DIV_ROUND_UP(seed->size, seed->granularity), 8);
}

/*
 * Make dirty what @fd does not call proven.  A bitmap's serialization has
 * the very format of @fd.
 */
static bool merge_not_proven(DedupSeed *seed, int fd, Error **errp)
{
    g_autofree uint8_t *buf = g_malloc(CHUNK);
    uint64_t length = bitmap_bytes(seed);
    unsigned tail = DIV_ROUND_UP(seed->size, seed->granularity) % 8;
    BdrvDirtyBitmap *rest;
    bool ok = true;

    rest = bdrv_create_dirty_bitmap(seed->bs, seed->granularity, NULL, errp);
    if (!rest) {
        return false;
    }
    bdrv_disable_dirty_bitmap(rest);
    for (uint64_t done = 0; ok && done < length; done += CHUNK) {
        uint64_t n = MIN(CHUNK, length - done);
        int64_t offset = done * 8 * seed->granularity;

        ok = pread(fd, buf, n, done) == n;
        for (uint64_t i = 0; i < n; i++) {
            buf[i] = ~buf[i];
        }
        if (done + n == length && tail) {
            buf[n - 1] &= (1 << tail) - 1;
        }
        memset(buf + n, 0, CHUNK - n);
        bdrv_dirty_bitmap_deserialize_part(
            rest, buf, offset,
            MIN((int64_t)CHUNK * 8 * seed->granularity, seed->size - offset),
            false);
    }
    if (ok) {
        bdrv_dirty_bitmap_deserialize_finish(rest);
        bdrv_dirty_bitmap_merge_internal(seed->bitmap, rest, NULL, true);
    } else {
        error_setg(errp, "Reading the bitmap of what is proven failed");
    }
    bdrv_release_dirty_bitmap(rest);
    return ok;
}

bool dedup_seed_arm(DedupSeed *seed, int proven, uint64_t canary_offset,
                    const uint8_t *canary, Error **errp)
{
    struct stat st;

    if (!dedup_seed_is_watching(seed, errp) || !is_memfd(proven, errp)) {
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
    if (!merge_not_proven(seed, proven, errp)) {
        return false;
    }
    bdrv_set_dirty_bitmap(seed->bitmap, canary_offset, DEDUP_SEED_CANARY);
    seed->canary_offset = canary_offset;
    memcpy(seed->canary, canary, DEDUP_SEED_CANARY);
    seed->proven = seed->size - dedup_seed_dirty_bytes(seed, seed->bitmap);
    dedup_seed_set_state(seed, DEDUP_SEED_ARMED, 0, NULL);
    return true;
}

bool dedup_seed_write_dirty(DedupSeed *seed, int fd, Error **errp)
{
    g_autofree uint8_t *buf = g_malloc(CHUNK);
    uint64_t length = bitmap_bytes(seed);

    if (!dedup_seed_is_watching(seed, errp) || !is_memfd(fd, errp)) {
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
