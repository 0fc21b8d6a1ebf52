/*
 * Seeded mirror: a mirror job that copies only what is not proven equal
 * =====================================================================
 *
 * A mirror begins with a bitmap of everything that is allocated.  If the
 * target already holds most of it, because somebody put it there and
 * compared digests, the mirror can begin with the rest:
 *
 *   client                         seed's bitmap (anonymous, of the node)
 *   ------                         --------------------------------------
 *   watch                          all dirty
 *   clear a range, then read it    dirty again as soon as a guest writes
 *     ... digests to the target's host, which fills its copy, reads it
 *     back, compares: proven or not
 *   arm (proven, canary)           |= not proven, |= the canary's granule
 *   blockdev-mirror, by anybody    the job's bitmap begins as a copy of it
 *
 * The rule is: what is not proven is dirty.  A client that dies leaves
 * everything dirty, or a bitmap that no job takes.
 *
 * Why no write is lost.  bdrv_co_write_req_finish() sets the bit after the
 * driver has written and before the request completes, also if it failed.
 * If it is set before the client clears it, the write had reached the image
 * before the client reads it.  If the write is under way then, the bit is
 * set afterwards.  So the range has to be cleared before it is read: the
 * other way round, a write between the two is lost.  The job's own bitmap
 * records from the moment its filter is in place, with the node drained;
 * the seed's goes on recording until after it is merged into that.
 *
 * Why the target is the right one.  Whoever filled it wrote random bytes
 * (the canary) into one granule that stays dirty; the job reads them through
 * its target.  Then it compares some blocks that count as proven.  Both come
 * before the first write to the target, when an ordinary mirror is still
 * possible.
 *
 * When in doubt, everything.  A seed is for one job.  If anything is in doubt,
 * or nothing was armed, the job copies all of the disk, and the reason is kept
 * until the seed is forgotten.  All is more than an ordinary mirror copies: that
 * takes it for granted that the target has zeros, or the base, in ranges that
 * are not allocated here.  Somebody has written to this target.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qemu/coroutine.h"
#include "qemu/error-report.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/timer.h"
#include "qemu/uuid.h"
#include "qapi/error.h"
#include "block/block_int.h"
#include "block/dedup-seed.h"
#include "block/dirty-bitmap.h"
#include "system/block-backend.h"

#define MAX_SEEDS       64
/* 32 MiB of bitmap: 8 TiB of granules of 32 KiB */
#define MAX_GRANULES    (1ull << 28)
#define CHUNK           65536           /* of a bitmap, in bytes */
#define SAMPLES         32              /* blocks compared before a job */
#define SAMPLE_BYTES    4096
#define WRITE_POLLS     50
#define WRITE_POLL_NS   (10 * SCALE_MS)

struct DedupSeed {
    QLIST_ENTRY(DedupSeed) next;
    char *token, *device, *node;
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
    int64_t proven;
    int64_t canary_offset;
    uint8_t canary[DEDUP_SEED_CANARY];

    /* Written by a job's coroutine too: under the lock */
    DedupSeedState state;
    int64_t dirty;              /* valid if USED, or there is no bitmap */
    char *reason;
};

/* Changed under the BQL and the lock, so read with either */
static QLIST_HEAD(, DedupSeed) seeds = QLIST_HEAD_INITIALIZER(seeds);
static QemuMutex lock;

static void __attribute__((constructor)) seed_lock_init(void)
{
    qemu_mutex_init(&lock);
}

static void seed_set_state(DedupSeed *seed, DedupSeedState state,
                           int64_t dirty, const char *reason)
{
    QEMU_LOCK_GUARD(&lock);
    seed->state = state;
    seed->dirty = dirty;
    g_free(seed->reason);
    seed->reason = g_strdup(reason);
}

/* The last granule may be shorter than the others */
static int64_t dirty_bytes(DedupSeed *seed, BdrvDirtyBitmap *bitmap)
{
    return MIN(bdrv_get_dirty_count(bitmap), seed->size);
}

static void seed_release(DedupSeed *seed)
{
    g_clear_pointer(&seed->bitmap, bdrv_release_dirty_bitmap);
}

static bool seed_is_live(DedupSeed *seed)
{
    return seed->state == DEDUP_SEED_WATCHING ||
           seed->state == DEDUP_SEED_ARMED;
}

static void seed_drop(DedupSeed *seed, const char *reason)
{
    seed_set_state(seed, DEDUP_SEED_DROPPED, seed->size, reason);
    seed_release(seed);
}

static void seed_free(DedupSeed *seed)
{
    WITH_QEMU_LOCK_GUARD(&lock) {
        QLIST_REMOVE(seed, next);
    }
    seed_release(seed);
    g_free(seed->token);
    g_free(seed->device);
    g_free(seed->node);
    g_free(seed->layers);
    g_free(seed->reason);
    g_free(seed);
}

/* Everything @bs takes its content from; not its filters */
static void GRAPH_RDLOCK describe(BlockDriverState *bs, GString *layers)
{
    BdrvChild *child;

    g_string_append_printf(layers, "%s@%p(", bs->node_name, bs);
    QLIST_FOREACH(child, &bs->children, next) {
        g_string_append_printf(layers, "%s=", child->name);
        describe(child->bs, layers);
    }
    g_string_append(layers, ")");
}

static bool GRAPH_RDLOCK is_encrypted(BlockDriverState *bs)
{
    BdrvChild *child;

    if (bs->encrypted) {
        return true;
    }
    QLIST_FOREACH(child, &bs->children, next) {
        if (is_encrypted(child->bs)) {
            return true;
        }
    }
    return false;
}

/* The node on top of the disk of the seed's device, or NULL */
static BlockDriverState *seed_top(DedupSeed *seed)
{
    for (BlockBackend *b = blk_all_next(NULL); b; b = blk_all_next(b)) {
        if (blk_get_attached_dev(b) == seed->dev) {
            return blk_bs(b);
        }
    }
    return NULL;
}

/* Why a mirror had better copy everything, or NULL */
static const char *GRAPH_RDLOCK seed_doubt(DedupSeed *seed)
{
    g_autoptr(GString) layers = g_string_new(NULL);
    BlockDriverState *top = seed_top(seed);

    if (!top || bdrv_skip_filters(top) != seed->bs) {
        return "another node has taken the place of the disk's node";
    }
    if (qatomic_read(&seed->resized) ||
        seed->bs->total_sectors * BDRV_SECTOR_SIZE != seed->size) {
        return "the disk was resized";
    }
    describe(seed->bs, layers);
    if (strcmp(layers->str, seed->layers)) {
        return "the layers of the disk have changed";
    }
    if (bdrv_is_inactive(seed->bs)) {
        return "the disk is inactive";
    }
    return NULL;
}

static void seed_check(DedupSeed *seed)
{
    const char *doubt;

    GRAPH_RDLOCK_GUARD_MAINLOOP();
    if (seed_is_live(seed)) {
        doubt = seed_doubt(seed);
        if (doubt) {
            seed_drop(seed, doubt);
        }
    }
}

DedupSeed *dedup_seed_watch(BlockBackend *blk, const char *device,
                            uint32_t granularity, Error **errp)
{
    g_autoptr(GString) layers = g_string_new(NULL);
    BdrvDirtyBitmap *bitmap;
    BlockDriverState *bs;
    DedupSeed *seed, *next;
    uint64_t perm, shared;
    unsigned n = 0;
    QemuUUID uuid;

    GLOBAL_STATE_CODE();
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    /* Filters come and go, a mirror's too: watch what is below them */
    bs = blk_bs(blk) ? bdrv_skip_filters(blk_bs(blk)) : NULL;
    if (!bs || !blk_is_inserted(blk)) {
        error_setg(errp, "Device '%s' has no medium", device);
        return NULL;
    }
    if (!is_power_of_2(granularity) ||
        granularity < DEDUP_SEED_MIN_GRANULARITY ||
        granularity > DEDUP_SEED_MAX_GRANULARITY) {
        error_setg(errp, "Granularity must be a power of 2 from %d to %d",
                   DEDUP_SEED_MIN_GRANULARITY, DEDUP_SEED_MAX_GRANULARITY);
        return NULL;
    }
    if (bdrv_is_inactive(bs)) {
        error_setg(errp, "The disk of device '%s' is inactive", device);
        return NULL;
    }
    if (is_encrypted(bs)) {
        error_setg(errp, "The disk of device '%s' is encrypted: digests of "
                   "it must not leave the host", device);
        return NULL;
    }
    blk_get_perm(blk, &perm, &shared);
    if (shared & BLK_PERM_WRITE) {
        error_setg(errp, "The disk of device '%s' is shareable: others may "
                   "write to it unseen", device);
        return NULL;
    }
    QLIST_FOREACH_SAFE(seed, &seeds, next, next) {
        if (!seed->job && (seed->bs == bs || !strcmp(seed->device, device))) {
            seed_free(seed);
        } else {
            n++;
        }
    }
    if (n >= MAX_SEEDS) {
        error_setg(errp, "%d disks are watched already", MAX_SEEDS);
        return NULL;
    }
    bitmap = bdrv_create_dirty_bitmap(bs, granularity, NULL, errp);
    if (!bitmap) {
        return NULL;
    }
    if (bdrv_dirty_bitmap_size(bitmap) < DEDUP_SEED_CANARY ||
        bdrv_dirty_bitmap_size(bitmap) / granularity >= MAX_GRANULES) {
        error_setg(errp, "The disk of device '%s' is too %s", device,
                   bdrv_dirty_bitmap_size(bitmap) < DEDUP_SEED_CANARY ?
                   "small" : "large for this granularity");
        bdrv_release_dirty_bitmap(bitmap);
        return NULL;
    }
    bdrv_set_dirty_bitmap(bitmap, 0, bdrv_dirty_bitmap_size(bitmap));

    describe(bs, layers);
    qemu_uuid_generate(&uuid);
    seed = g_new0(DedupSeed, 1);
    seed->token = qemu_uuid_unparse_strdup(&uuid);
    seed->device = g_strdup(device);
    seed->node = g_strdup(bdrv_get_node_name(bs));
    seed->dev = blk_get_attached_dev(blk);
    seed->bs = bs;
    seed->bitmap = bitmap;
    seed->layers = g_strdup(layers->str);
    seed->size = bdrv_dirty_bitmap_size(bitmap);
    seed->granularity = granularity;
    WITH_QEMU_LOCK_GUARD(&lock) {
        QLIST_INSERT_HEAD(&seeds, seed, next);
    }
    return seed;
}

DedupSeed *dedup_seed_by_token(const char *token, Error **errp)
{
    DedupSeed *seed;

    QLIST_FOREACH(seed, &seeds, next) {
        if (!seed->forgotten && !strcmp(seed->token, token)) {
            return seed;
        }
    }
    error_setg(errp, "No disk is watched with the token '%s'", token);
    return NULL;
}

DedupSeed *dedup_seed_next(DedupSeed *seed)
{
    do {
        seed = seed ? QLIST_NEXT(seed, next) : QLIST_FIRST(&seeds);
    } while (seed && seed->forgotten);
    return seed;
}

static bool seed_is_watching(DedupSeed *seed, Error **errp)
{
    seed_check(seed);
    if (seed->state == DEDUP_SEED_DROPPED) {
        error_setg(errp, "The watch of device '%s' was dropped: %s",
                   seed->device, seed->reason);
        return false;
    }
    if (seed->state != DEDUP_SEED_WATCHING) {
        error_setg(errp, "The watch of device '%s' was armed before",
                   seed->device);
        return false;
    }
    return true;
}

bool dedup_seed_clear(DedupSeed *seed, uint64_t offset, uint64_t bytes,
                      Error **errp)
{
    if (!seed_is_watching(seed, errp)) {
        return false;
    }
    if (!bytes || bytes > seed->size || offset > seed->size - bytes) {
        error_setg(errp, "Range %" PRIu64 "+%" PRIu64 " is not in the disk",
                   offset, bytes);
        return false;
    }
    if (!QEMU_IS_ALIGNED(offset, seed->granularity) ||
        (!QEMU_IS_ALIGNED(bytes, seed->granularity) &&
         offset + bytes != seed->size)) {
        error_setg(errp, "Range %" PRIu64 "+%" PRIu64 " is not of whole "
                   "granules", offset, bytes);
        return false;
    }
    bdrv_reset_dirty_bitmap(seed->bitmap, offset, bytes);
    return true;
}

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

    if (!seed_is_watching(seed, errp) || !is_memfd(proven, errp)) {
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
    seed->proven = seed->size - dirty_bytes(seed, seed->bitmap);
    seed_set_state(seed, DEDUP_SEED_ARMED, 0, NULL);
    return true;
}

bool dedup_seed_write_dirty(DedupSeed *seed, int fd, Error **errp)
{
    g_autofree uint8_t *buf = g_malloc(CHUNK);
    uint64_t length = bitmap_bytes(seed);

    if (!seed_is_watching(seed, errp) || !is_memfd(fd, errp)) {
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

void dedup_seed_figures(DedupSeed *seed, DedupSeedFigures *figures)
{
    seed_check(seed);
    *figures = (DedupSeedFigures) {
        .token = seed->token, .device = seed->device, .node = seed->node,
        .size = seed->size, .granularity = seed->granularity,
        .proven = seed->proven,
    };
    WITH_QEMU_LOCK_GUARD(&lock) {
        figures->state = seed->state;
        figures->reason = seed->reason;
        figures->dirty = seed->dirty;
    }
    if (figures->state < DEDUP_SEED_USED) {
        figures->dirty = dirty_bytes(seed, seed->bitmap);
    }
}

void dedup_seed_forget(DedupSeed *seed)
{
    if (seed->job) {
        seed->forgotten = true;
    } else {
        seed_free(seed);
    }
}

void dedup_seed_drop_all(const char *reason)
{
    DedupSeed *seed;

    QLIST_FOREACH(seed, &seeds, next) {
        if (seed_is_live(seed)) {
            seed_drop(seed, reason);
        }
    }
}

void dedup_seed_drop_node(BlockDriverState *bs, const char *reason)
{
    DedupSeed *seed;

    QLIST_FOREACH(seed, &seeds, next) {
        if (seed->bs == bs && seed_is_live(seed)) {
            seed_drop(seed, reason);
        }
    }
}

void dedup_seed_close(BlockDriverState *bs)
{
    DedupSeed *seed;

    dedup_seed_drop_node(bs, "the disk was closed");
    QEMU_LOCK_GUARD(&lock);
    QLIST_FOREACH(seed, &seeds, next) {
        if (seed->bs == bs) {
            seed->bs = NULL;
        }
    }
}

/* What a resize adds would count as clean */
void dedup_seed_resized(BlockDriverState *bs)
{
    DedupSeed *seed;

    QEMU_LOCK_GUARD(&lock);
    QLIST_FOREACH(seed, &seeds, next) {
        if (seed->bs == bs) {
            qatomic_set(&seed->resized, true);
        }
    }
}

static bool GRAPH_RDLOCK is_below(BlockDriverState *bs, BlockDriverState *top)
{
    while (top && top != bs) {
        top = bdrv_filter_or_cow_bs(top);
    }
    return top;
}

/* Of a disk that a mirror of @bs is about, and that no other job has */
static DedupSeed *GRAPH_RDLOCK seed_of_mirror(BlockDriverState *bs)
{
    DedupSeed *seed;

    QLIST_FOREACH(seed, &seeds, next) {
        if (!seed->job && ((seed->bs && is_below(seed->bs, bs)) ||
                           is_below(bs, seed_top(seed)))) {
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
    doubt = seed_doubt(seed);
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
            seed_set_state(seed, DEDUP_SEED_USED, seed->size,
                           "the mirror job has not begun to copy");
            return seed;
        }
        seed_drop(seed, doubt);
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
            seed_set_state(seed, DEDUP_SEED_DROPPED, seed->size, doubt);
            seed_say(seed);
        }
    }
    if (seed->everything || doubt) {
        bdrv_set_dirty_bitmap(dirty, 0, length);
    } else {
        bdrv_dirty_bitmap_merge_internal(dirty, seed->bitmap, NULL, true);
        seed_set_state(seed, DEDUP_SEED_USED, dirty_bytes(seed, dirty), NULL);
    }
}

void dedup_seed_end(DedupSeed *seed)
{
    if (seed) {
        seed->job = false;
        seed_release(seed);
        if (seed->forgotten) {
            seed_free(seed);
        }
    }
}
