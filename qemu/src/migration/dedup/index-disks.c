/*
 * Content index: reading the disks
 *
 * Each read begins in the main loop, goes on in a coroutine of the disk's
 * context and ends in the main loop; the thread waits for it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/coroutine.h"
#include "qemu/cutils.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "block/aio-wait.h"
#include "block/block_int.h"
#include "system/block-backend.h"
#include "index-int.h"

#define READ_BYTES      (1 * MiB)
#define STATUS_BYTES    (1 * GiB)       /* asked for at once */
#define BURST_NS        (100 * SCALE_MS)
#define DRAINED_NS      (30 * NANOSECONDS_PER_SECOND)

/* Main loop */
static void read_end(void *opaque)
{
    Index *x = opaque;

    blk_unref(x->blk);
    qemu_event_set(&x->done);
}

static int coroutine_fn read_step(Index *x)
{
    uint64_t left = x->disk->length - x->offset;
    int64_t n = 0;
    int ret;

    GRAPH_RDLOCK_GUARD();
    ret = bdrv_co_block_status_above(x->root->bs, NULL, x->offset,
                                     MIN(left, STATUS_BYTES), &n, NULL,
                                     NULL);
    if (ret < 0) {
        return ret;
    }
    x->zero = (ret & BDRV_BLOCK_ZERO) && n >= DEDUP_PAGE_SIZE;
    if (x->zero) {
        x->bytes = ROUND_DOWN(n, DEDUP_PAGE_SIZE);
        return 0;
    }
    n = MAX(n, DEDUP_PAGE_SIZE);
    x->bytes = MIN(MIN(left, ROUND_UP(n, DEDUP_PAGE_SIZE)), READ_BYTES);
    return bdrv_co_pread(x->root, x->offset, x->bytes, x->buf, 0);
}

static void coroutine_fn read_co(void *opaque)
{
    Index *x = opaque;
    BlockBackend *blk = x->blk;

    x->ret = read_step(x);
    blk_dec_in_flight(blk);
    aio_wait_kick();
    aio_bh_schedule_oneshot(qemu_get_aio_context(), read_end, x);
}

/*
 * Main loop, so that neither a drain nor the end of the disk comes between
 * the look and the beginning
 */
static void read_begin(void *opaque)
{
    Index *x = opaque;
    BlockBackend *blk = blk_all_next(NULL);
    const BdrvChild *root = NULL;

    while (blk && blk != x->disk->blk) {
        blk = blk_all_next(blk);
    }
    if (blk && blk_get_attached_dev(blk)) {
        root = blk_root(blk);
    }
    if (index_stopped() || !root || root->bs->open_flags & BDRV_O_INACTIVE) {
        x->ret = -ENOMEDIUM;
    } else if (root->bs->quiesce_counter) {
        x->ret = -EAGAIN;
    } else {
        x->blk = blk;
        x->root = (BdrvChild *)root;
        blk_ref(blk);
        blk_inc_in_flight(blk);
        aio_co_enter(blk_get_aio_context(blk),
                     qemu_coroutine_create(read_co, x));
        return;
    }
    qemu_event_set(&x->done);
}

/* 0 or -errno; -ENOMEDIUM: the disk is gone, or all of it is to end */
static int read_some(Index *x)
{
    int64_t deadline = get_clock() + DRAINED_NS;

    do {
        qemu_event_reset(&x->done);
        aio_bh_schedule_oneshot(qemu_get_aio_context(), read_begin, x);
        qemu_event_wait(&x->done);
        if (x->ret == -EAGAIN) {
            index_sleep_until(get_clock() + SCALE_MS);
        }
    } while (x->ret == -EAGAIN && !index_stopped() && get_clock() < deadline);
    return x->ret;
}

static void pace(Index *x)
{
    if (x->rate) {
        x->due_ns = MAX(x->due_ns, get_clock() - BURST_NS) +
                    muldiv64(x->bytes, NANOSECONDS_PER_SECOND, x->rate);
        index_sleep_until(x->due_ns);
    }
}

/* False: not all of it could be read */
static bool read_disk(Index *x, IndexDisk *d)
{
    x->disk = d;
    x->offset = 0;
    /* No page left to find a place for: that was all */
    while (x->offset < d->length && dedup_content_pages(x->table) &&
           !index_stopped()) {
        int ret = read_some(x);

        if (ret == -ENOMEDIUM) {
            return true;
        }
        if (ret < 0) {
            index_set_reason(g_strdup_printf(
                "disk %s cannot be read at %" PRIu64 ": %s", d->device,
                x->offset, strerror(-ret)));
            return false;
        }
        if (x->zero) {
            x->offset += x->bytes;
        } else {
            index_look_up(x);
        }
        WITH_QEMU_LOCK_GUARD(&index_now.lock) {
            index_now.fig.done_bytes += x->bytes;
            index_now.fig.read_bytes += x->zero ? 0 : x->bytes;
            index_now.fig.found_pages = x->found;
            index_now.fig.changed_pages = x->changed;
        }
        if (!x->zero) {
            pace(x);
        }
    }
    return true;
}

bool index_read_disks(Index *x)
{
    bool whole = true;

    WITH_QEMU_LOCK_GUARD(&index_now.lock) {
        index_now.fig.state = DEDUP_INDEX_STATE_DISKS;
    }
    x->buf = qemu_try_memalign(qemu_real_host_page_size(), READ_BYTES);
    if (!x->buf) {
        index_set_reason(g_strdup("not enough memory to read the disks"));
        return false;
    }
    for (unsigned i = 0; i < x->disks->len; i++) {
        whole &= read_disk(x, &g_array_index(x->disks, IndexDisk, i));
    }
    return whole;
}

/* BQL */

/* Whether a read would go through the host's page cache */
static bool GRAPH_RDLOCK is_cached(BlockDriverState *bs)
{
    BdrvChild *child;

    if (bs->drv && (!strcmp(bs->drv->format_name, "file") ||
                    !strcmp(bs->drv->format_name, "host_device"))) {
        return !(bs->open_flags & BDRV_O_NOCACHE);
    }
    QLIST_FOREACH(child, &bs->children, next) {
        if (is_cached(child->bs)) {
            return true;
        }
    }
    return false;
}

static bool blk_is_cached(BlockBackend *blk)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    return blk_bs(blk) && is_cached(blk_bs(blk));
}

static bool add_disk(Index *x, BlockBackend *blk, const char *device,
                     bool cached, Error **errp)
{
    IndexDisk d = {
        .blk = blk,
        .slot = dedup_slot_of(blk),
        .length = ROUND_DOWN(MAX(0, blk_getlength(blk)), DEDUP_PAGE_SIZE),
    };

    if (!cached && blk_is_cached(blk)) {
        error_setg(errp, "Disk '%s' is read through the host's page cache, "
                   "which the index would fill: pass 'cached', or use "
                   "cache.direct", device);
        return false;
    }
    if (d.slot) {
        d.device = g_strdup(device);
        g_array_append_val(x->disks, d);
        index_now.fig.bytes += d.length;
    }
    return true;
}

bool index_find_disks(Index *x, bool named, strList *devices, bool cached,
                       Error **errp)
{
    for (; named && devices; devices = devices->next) {
        BlockBackend *blk = dedup_blk_by_device(devices->value, errp);

        if (!blk || !add_disk(x, blk, devices->value, cached, errp)) {
            return false;
        }
    }
    for (BlockBackend *b = named ? NULL : blk_all_next(NULL); b;
         b = blk_all_next(b)) {
        g_autofree char *path = blk_is_inserted(b) ? dedup_blk_path(b)
                                                   : NULL;

        if (path && !add_disk(x, b, path, cached, errp)) {
            return false;
        }
    }
    return true;
}
