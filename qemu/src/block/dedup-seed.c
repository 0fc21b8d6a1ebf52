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
 * Watches that no mirror takes.  Somebody may record writes without a mirror in
 * view, to keep a copy current or to know what is newer than a backup.  Nobody
 * writes to the target of whatever mirror begins meanwhile, so it is an
 * ordinary one, and the recorder's watch goes on.  It becomes that for the next
 * mirror when it is claimed, which is before anybody writes to the target:
 *
 *   watch (recorder)    mirrors ignore it
 *   claim               the next mirror takes it: everything, if nothing is
 *     fill the target   armed by then
 *   arm
 *
 * When in doubt, everything.  A seed is for one job.  If anything is in
 * doubt, or nothing was armed, the job copies all of the disk, and the reason
 * is kept until the seed is forgotten.  All is more than an ordinary mirror
 * copies: that takes it for granted that the target has zeros, or the base, in
 * ranges that are not allocated here.  Somebody has written to this target.
 *
 * Clients' bitmaps are in dedup-seed-bitmap.c, mirror jobs in
 * dedup-seed-mirror.c.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/id.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/uuid.h"
#include "qapi/error.h"
#include "block/block_int.h"
#include "block/dirty-bitmap.h"
#include "system/block-backend.h"
#include "dedup-seed-int.h"

#define MAX_SEEDS       128
/* 32 MiB of bitmap: 8 TiB of granules of 32 KiB */
#define MAX_GRANULES    (1ull << 28)

/* Changed under the BQL and the lock, so read with either */
static QLIST_HEAD(, DedupSeed) seeds = QLIST_HEAD_INITIALIZER(seeds);
static QemuMutex lock;

static void __attribute__((constructor)) seed_lock_init(void)
{
    qemu_mutex_init(&lock);
}

void dedup_seed_set_state(DedupSeed *seed, DedupSeedState state,
                          int64_t dirty, const char *reason)
{
    QEMU_LOCK_GUARD(&lock);
    seed->state = state;
    seed->dirty = dirty;
    g_free(seed->reason);
    seed->reason = g_strdup(reason);
}

int64_t dedup_seed_dirty_bytes(DedupSeed *seed, BdrvDirtyBitmap *bitmap)
{
    return MIN(bdrv_get_dirty_count(bitmap), seed->size);
}

void dedup_seed_release(DedupSeed *seed)
{
    g_clear_pointer(&seed->bitmap, bdrv_release_dirty_bitmap);
}

static bool seed_is_live(DedupSeed *seed)
{
    return seed->state == DEDUP_SEED_WATCHING ||
           seed->state == DEDUP_SEED_ARMED;
}

void dedup_seed_drop(DedupSeed *seed, const char *reason)
{
    dedup_seed_set_state(seed, DEDUP_SEED_DROPPED, seed->size, reason);
    dedup_seed_release(seed);
}

void dedup_seed_free(DedupSeed *seed)
{
    WITH_QEMU_LOCK_GUARD(&lock) {
        QLIST_REMOVE(seed, next);
    }
    dedup_seed_release(seed);
    g_free(seed->token);
    g_free(seed->device);
    g_free(seed->node);
    g_free(seed->recorder);
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

BlockDriverState *dedup_seed_top(DedupSeed *seed)
{
    for (BlockBackend *b = blk_all_next(NULL); b; b = blk_all_next(b)) {
        if (blk_get_attached_dev(b) == seed->dev) {
            return blk_bs(b);
        }
    }
    return NULL;
}

const char *GRAPH_RDLOCK dedup_seed_doubt(DedupSeed *seed)
{
    g_autoptr(GString) layers = g_string_new(NULL);
    BlockDriverState *top = dedup_seed_top(seed);

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
        doubt = dedup_seed_doubt(seed);
        if (doubt) {
            dedup_seed_drop(seed, doubt);
        }
    }
}

/* Forget the watch of a disk for a recorder, or a mirror if that is NULL */
static void forget_watch(BlockDriverState *bs, const char *device,
                         const char *recorder)
{
    DedupSeed *seed, *next;

    QLIST_FOREACH_SAFE(seed, &seeds, next, next) {
        if (!seed->job && (seed->bs == bs || !strcmp(seed->device, device)) &&
            !g_strcmp0(seed->recorder, recorder)) {
            dedup_seed_free(seed);
        }
    }
}

static unsigned count_seeds(void)
{
    DedupSeed *seed;
    unsigned n = 0;

    QLIST_FOREACH(seed, &seeds, next) {
        n++;
    }
    return n;
}

char *dedup_seed_watch(BlockBackend *blk, const char *device,
                       uint32_t granularity, const char *recorder,
                       Error **errp)
{
    g_autoptr(GString) layers = g_string_new(NULL);
    BdrvDirtyBitmap *bitmap;
    BlockDriverState *bs;
    DedupSeed *seed;
    uint64_t perm, shared;
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
    if (recorder && (!id_wellformed(recorder) ||
                     strlen(recorder) > DEDUP_SEED_RECORDER)) {
        error_setg(errp, "A recorder must be an ID of at most %d characters",
                   DEDUP_SEED_RECORDER);
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
    forget_watch(bs, device, recorder);
    if (count_seeds() >= MAX_SEEDS) {
        error_setg(errp, "There are %d watches already", MAX_SEEDS);
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

    describe(bs, layers);
    qemu_uuid_generate(&uuid);
    seed = g_new0(DedupSeed, 1);
    seed->token = qemu_uuid_unparse_strdup(&uuid);
    seed->device = g_strdup(device);
    seed->node = g_strdup(bdrv_get_node_name(bs));
    seed->recorder = g_strdup(recorder);
    seed->dev = blk_get_attached_dev(blk);
    seed->bs = bs;
    seed->bitmap = bitmap;
    seed->layers = g_strdup(layers->str);
    seed->size = bdrv_dirty_bitmap_size(bitmap);
    seed->granularity = granularity;
    seed->busy = "set up";
    WITH_QEMU_LOCK_GUARD(&lock) {
        QLIST_INSERT_HEAD(&seeds, seed, next);
    }
    return g_strdup(seed->token);
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

bool dedup_seed_is_watching(DedupSeed *seed, Error **errp)
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

bool dedup_seed_is_free(DedupSeed *seed, Error **errp)
{
    if (!dedup_seed_is_watching(seed, errp)) {
        return false;
    }
    if (seed->busy) {
        error_setg(errp, "The watch of device '%s' is being %s: try again "
                   "when that has ended", seed->device, seed->busy);
        return false;
    }
    return true;
}

bool dedup_seed_claim(DedupSeed *seed, Error **errp)
{
    if (!dedup_seed_is_free(seed, errp)) {
        return false;
    }
    if (seed->recorder) {
        forget_watch(seed->bs, seed->device, NULL);
        g_clear_pointer(&seed->recorder, g_free);
    }
    return true;
}

bool dedup_seed_clear(DedupSeed *seed, uint64_t offset, uint64_t bytes,
                      Error **errp)
{
    if (!dedup_seed_is_free(seed, errp)) {
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

void dedup_seed_figures(DedupSeed *seed, DedupSeedFigures *figures)
{
    seed_check(seed);
    *figures = (DedupSeedFigures) {
        .token = seed->token, .device = seed->device, .node = seed->node,
        .recorder = seed->recorder,
        .size = seed->size, .granularity = seed->granularity,
        .proven = seed->proven,
    };
    WITH_QEMU_LOCK_GUARD(&lock) {
        figures->state = seed->state;
        figures->reason = seed->reason;
        figures->dirty = seed->dirty;
    }
    if (figures->state < DEDUP_SEED_USED) {
        figures->dirty = dedup_seed_dirty_bytes(seed, seed->bitmap);
    }
}

void dedup_seed_forget(DedupSeed *seed)
{
    if (seed->job) {
        seed->forgotten = true;
    } else {
        dedup_seed_free(seed);
    }
}

void dedup_seed_drop_all(const char *reason)
{
    DedupSeed *seed;

    QLIST_FOREACH(seed, &seeds, next) {
        if (seed_is_live(seed)) {
            dedup_seed_drop(seed, reason);
        }
    }
}

void dedup_seed_drop_node(BlockDriverState *bs, const char *reason)
{
    DedupSeed *seed;

    QLIST_FOREACH(seed, &seeds, next) {
        if (seed->bs == bs && seed_is_live(seed)) {
            dedup_seed_drop(seed, reason);
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
