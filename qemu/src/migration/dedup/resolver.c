/*
 * Resolver: where the bytes at a guest offset really are
 *
 * Hints hold guest offsets, because anything else goes stale with the next
 * snapshot or copy-on-write.  When a migration starts, the disks that both
 * sides share are looked up: at which depth of the backing chain, in which
 * node, at which offset.  Done by a coroutine in the disk's own context, only
 * around offsets that have a hint, giving way to other work all the time.
 *
 * The answer may be outdated when it is used (the guest goes on writing): the
 * destination then reads other bytes, says so, and the place is looked up
 * again.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/aio-wait.h"
#include "block/block_int.h"
#include "qemu/bitmap.h"
#include "qemu/coroutine.h"
#include "qemu/lockable.h"
#include "qemu/timer.h"
#include "system/block-backend.h"
#include "dedup-int.h"
#include "hold.h"

#define GRAIN_BITS      16              /* unit of what is to be done */
#define STEP_MAX        (1LL << 30)     /* bytes asked for at once */
#define STEPS_A_TURN    8
#define PAUSE_NS        (100 * SCALE_US)

struct DedupResolver {
    BlockBackend *blk;
    QemuMutex lock;                     /* found, busy, quit, ref */
    unsigned long *todo;
    uint64_t grains;
    int64_t length;
    GArray *found;                      /* DedupExtent */
    GArray *taking;                     /* likewise, by who takes them: */
    unsigned taken;                     /* so many of these were */
    bool busy;
    bool halt;                          /* end soon; kick() takes it back */
    bool quit;                          /* likewise, and for good */
    unsigned ref;                       /* owner, coroutine */
};

static void resolver_free_bh(void *opaque)
{
    DedupResolver *r = opaque;

    blk_unref(r->blk);
    qemu_mutex_destroy(&r->lock);
    g_array_free(r->found, true);
    g_array_free(r->taking, true);
    g_free(r->todo);
    g_free(r);
}

static void resolver_unref(DedupResolver *r)
{
    bool last;

    WITH_QEMU_LOCK_GUARD(&r->lock) {
        last = --r->ref == 0;
    }
    if (last) {
        aio_bh_schedule_oneshot(qemu_get_aio_context(), resolver_free_bh, r);
    }
}

/*
 * One step at @offset.  Returns how many bytes are known now (with *@e
 * filled in if they can be read at one place, else @e->len 0), or -errno.
 */
static int64_t coroutine_fn resolve_step(DedupResolver *r, int64_t offset,
                                         DedupExtent *e)
{
    int64_t bytes = r->length - offset;
    BlockDriverState *bs;

    GRAPH_RDLOCK_GUARD();
    memset(e, 0, sizeof(*e));

    bs = blk_bs(r->blk);
    bs = bs ? bdrv_skip_filters(bs) : NULL;
    for (unsigned depth = 0; bs && depth < UINT16_MAX; depth++) {
        DEDUP_HOLD_SITE(status, "image", "block-status");
        int64_t pnum = 0, map = 0, start, cpu;
        BlockDriverState *file = NULL;
        BdrvChild *data;
        int ret;

        if (!bs->drv || bs->encrypted) {
            return bytes;
        }
        bytes = MIN(bytes, bs->total_sectors * BDRV_SECTOR_SIZE - offset);
        if (bytes <= 0) {               /* past the end of a backing file */
            return 1 << GRAIN_BITS;
        }
        if (bs->drv->protocol_name) {
            *e = (DedupExtent) { .start = offset, .len = bytes,
                                 .host = offset, .depth = depth,
                                 .node = DEDUP_NODE_SELF };
            return bytes;
        }
        if (!bs->drv->bdrv_co_block_status || !bs->file) {
            return bytes;
        }
        /*
         * Straight to the driver: bdrv_co_block_status() would go on to the
         * protocol to look for holes, which costs a round trip each on
         * network storage.
         */
        if (!bs->file->bs->drv || strcmp(bs->drv->format_name, "raw")) {
            bytes = MIN(bytes, STEP_MAX);
        }
        start = get_clock();
        cpu = dedup_hold_cpu_ns();
        ret = bs->drv->bdrv_co_block_status(bs, false, offset, bytes, &pnum,
                                            &map, &file);
        dedup_hold_note(&status, MIN(pnum, STEP_MAX) >> GRAIN_BITS,
                        dedup_hold_cpu_ns() - cpu, get_clock() - start);
        if (ret < 0) {
            return ret;
        }
        if (pnum <= 0) {
            return -EIO;
        }
        bytes = MIN(bytes, pnum);
        if ((ret & BDRV_BLOCK_COMPRESSED) || (ret & BDRV_BLOCK_ZERO)) {
            return bytes;
        }
        if ((ret & BDRV_BLOCK_OFFSET_VALID) &&
            (ret & (BDRV_BLOCK_RAW | BDRV_BLOCK_DATA))) {
            QLIST_FOREACH(data, &bs->children, next) {
                if (data->bs == file && (data == bs->file ||
                                         !strcmp(data->name, "data-file"))) {
                    *e = (DedupExtent) {
                        .start = offset, .len = bytes, .host = map,
                        .depth = depth,
                        .node = data == bs->file ? DEDUP_NODE_FILE
                                                 : DEDUP_NODE_DATA_FILE,
                    };
                    break;
                }
            }
            return bytes;
        }
        bs = bdrv_cow_bs(bs);
        bs = bs ? bdrv_skip_filters(bs) : NULL;
    }
    return bytes;
}

/* Nothing below @end of what starts at @grain is left to do */
static void resolver_done(DedupResolver *r, uint64_t grain, int64_t end)
{
    uint64_t last = MIN(r->grains, (uint64_t)end >> GRAIN_BITS);
    DEDUP_HOLD("bql", "resolver-step");

    if (dedup_inject.no_bounds) {
        for (; grain < last; grain++) {
            clear_bit_atomic(grain, r->todo);
            dedup_hold_steps(1);
        }
    } else if (grain < last) {
        /* A raw image is known to its end in one step: 16 million for 1 TiB */
        bitmap_test_and_clear_atomic(r->todo, grain, last - grain);
        dedup_hold_steps(DEDUP_BITMAP_STEPS(last - grain));
    }
}

static bool ending(DedupResolver *r)
{
    return qatomic_read(&r->halt) || qatomic_read(&r->quit);
}

static bool coroutine_fn quiesced(DedupResolver *r)
{
    BlockDriverState *bs;

    GRAPH_RDLOCK_GUARD();
    bs = blk_bs(r->blk);
    return bs && qatomic_read(&bs->quiesce_counter);
}

/* Let others have their turn; a drain must not wait for all that is left */
static void coroutine_fn resolver_give_way(DedupResolver *r)
{
    blk_dec_in_flight(r->blk);
    do {
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, PAUSE_NS);
    } while (quiesced(r) && !ending(r));
    blk_inc_in_flight(r->blk);
}

static void coroutine_fn resolver_co(void *opaque)
{
    DedupResolver *r = opaque;
    uint64_t grain = 0;
    unsigned steps = 0;

    for (;;) {
        int64_t offset, end;

        grain = find_next_bit(r->todo, r->grains, grain);
        if (grain >= r->grains || ending(r)) {
            QEMU_LOCK_GUARD(&r->lock);
            grain = find_next_bit(r->todo, r->grains, 0);
            if (grain >= r->grains || ending(r)) {
                qatomic_set(&r->busy, false);
                break;
            }
            continue;
        }
        clear_bit_atomic(grain, r->todo);
        offset = grain << GRAIN_BITS;
        end = MIN(r->length, offset + (1 << GRAIN_BITS));
        while (offset < end && !ending(r)) {
            DedupExtent e;
            int64_t n = resolve_step(r, offset, &e);

            if (n <= 0) {
                break;
            }
            if (e.len) {
                QEMU_LOCK_GUARD(&r->lock);
                g_array_append_val(r->found, e);
            }
            offset += n;
        }
        if (offset < end && ending(r)) {
            set_bit_atomic(grain, r->todo);
        }
        resolver_done(r, grain + 1, offset);
        grain++;
        if (++steps % STEPS_A_TURN == 0) {
            resolver_give_way(r);
        }
    }
    blk_dec_in_flight(r->blk);
    aio_wait_kick();
    resolver_unref(r);
}

static void resolver_enter(void *opaque)
{
    DedupResolver *r = opaque;

    aio_co_enter(blk_get_aio_context(r->blk),
                 qemu_coroutine_create(resolver_co, r));
}

void dedup_resolver_kick(DedupResolver *r)
{
    WITH_QEMU_LOCK_GUARD(&r->lock) {
        r->halt = false;
        if (r->busy || r->quit ||
            find_next_bit(r->todo, r->grains, 0) >= r->grains) {
            return;
        }
        r->busy = true;
        r->ref++;
    }
    blk_inc_in_flight(r->blk);
    aio_bh_schedule_oneshot(blk_get_aio_context(r->blk), resolver_enter, r);
}

void dedup_resolver_want(DedupResolver *r, uint64_t offset)
{
    uint64_t grain = offset >> GRAIN_BITS;

    if (grain < r->grains) {
        set_bit_atomic(grain, r->todo);
    }
}

bool dedup_resolver_busy(DedupResolver *r)
{
    return qatomic_read(&r->busy);
}

unsigned dedup_resolver_take(DedupResolver *r, DedupExtents *out,
                             unsigned most)
{
    unsigned n, leaves = 0;

    if (r->taken == r->taking->len) {
        g_array_set_size(r->taking, 0);
        r->taken = 0;
        QEMU_LOCK_GUARD(&r->lock);
        GArray *found = r->found;

        r->found = r->taking;
        r->taking = found;
    }
    n = MIN(most, r->taking->len - r->taken);
    for (unsigned i = 0; i < n; i++) {
        dedup_extents_add(out, &g_array_index(r->taking, DedupExtent,
                                              r->taken++), &leaves);
    }
    return n;
}

DedupResolver *dedup_resolver_new(BlockBackend *blk)
{
    DedupResolver *r = g_new0(DedupResolver, 1);

    qemu_mutex_init(&r->lock);
    r->ref = 1;
    r->blk = blk;
    blk_ref(blk);
    r->found = g_array_new(false, false, sizeof(DedupExtent));
    r->taking = g_array_new(false, false, sizeof(DedupExtent));
    r->length = MAX(0, blk_getlength(blk));
    r->grains = DIV_ROUND_UP(r->length, 1ULL << GRAIN_BITS);
    r->todo = bitmap_new(MAX(r->grains, 1));
    return r;
}

bool dedup_resolver_halt(DedupResolver *r)
{
    qatomic_set(&r->halt, true);
    return qatomic_read(&r->busy);
}

void dedup_resolver_end(DedupResolver *r)
{
    WITH_QEMU_LOCK_GUARD(&r->lock) {
        r->quit = true;
    }
    AIO_WAIT_WHILE_UNLOCKED(NULL, qatomic_read(&r->busy));
}

void dedup_resolver_free(DedupResolver *r)
{
    if (r) {
        WITH_QEMU_LOCK_GUARD(&r->lock) {
            r->quit = true;
        }
        resolver_unref(r);
    }
}
