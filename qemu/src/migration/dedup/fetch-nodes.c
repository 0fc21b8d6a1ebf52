/*
 * The disks a fetcher reads: which node, and where in it
 *
 * For a disk both sides share, the node below the format at the host offset
 * that the source resolved (the format's own metadata is stale until the
 * switch-over); for an own copy, the format node at the guest offset.
 *
 * Nodes are attached and detached in bottom halves of the main loop, because
 * the graph must not change within the migration coroutine.  Extents come
 * from there and are looked up in the IOThread, under the lock.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block_int.h"
#include "qapi/error.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "system/block-backend.h"
#include "fetch-int.h"

#define CHAIN_MAX   256

/* Index in DedupFetchDisk.targets; an own copy has only the first */
static unsigned target_index(unsigned depth, DedupNode node)
{
    return depth * DEDUP_NODE__MAX + node;
}

void dedup_fetch_add_disk(DedupFetch *f, char *path, DedupCopy copy)
{
    DedupFetchDisk *d = g_new0(DedupFetchDisk, 1);

    d->path = path;
    d->copy = copy;
    d->targets = g_ptr_array_new();
    g_ptr_array_add(f->disks, d);
}

unsigned dedup_fetch_disks(DedupFetch *f)
{
    return f->disks->len;
}

bool dedup_fetch_add_extent(DedupFetch *f, unsigned disk,
                            const DedupExtent *e)
{
    DedupFetchDisk *d = g_ptr_array_index(f->disks, disk);

    QEMU_LOCK_GUARD(&f->lock);
    return dedup_extents_add(&d->extents, e);
}

bool dedup_fetch_locate(DedupFetch *f, DedupFetchRecord *rec)
{
    DedupFetchDisk *d = g_ptr_array_index(f->disks, rec->disk);
    uint64_t guest = rec->sector * DEDUP_SECTOR;
    const DedupExtent *e;

    if (d->copy == DEDUP_COPY_OWN) {
        rec->target = 0;
        rec->offset = guest;
    } else {
        QEMU_LOCK_GUARD(&f->lock);
        e = dedup_extents_find(&d->extents, guest, DEDUP_PAGE_SIZE);
        if (!e) {
            return false;
        }
        rec->target = target_index(e->depth, e->node);
        rec->offset = e->host + (guest - e->start);
    }
    return rec->target < d->targets->len &&
           g_ptr_array_index(d->targets, rec->target);
}

BlockBackend *dedup_fetch_target(DedupFetch *f, const DedupFetchRecord *rec)
{
    DedupFetchDisk *d = g_ptr_array_index(f->disks, rec->disk);

    return g_ptr_array_index(d->targets, rec->target);
}

static void open_target(DedupFetchDisk *d, unsigned index,
                        BlockDriverState *bs)
{
    Error *err = NULL;
    BlockBackend *blk = blk_new_with_bs(bs, 0, BLK_PERM_ALL, &err);

    if (!blk) {
        warn_report_err(err);
        return;
    }
    /* The device may take the node to its IOThread when the guest starts */
    blk_set_allow_aio_context_change(blk, true);
    if (d->targets->len <= index) {
        g_ptr_array_set_size(d->targets, index + 1);
    }
    g_ptr_array_index(d->targets, index) = blk;
}

/* The children of the node at one depth; collected first, then attached */
static void open_shared(DedupFetchDisk *d, BlockBackend *dev)
{
    BlockDriverState *found[CHAIN_MAX][DEDUP_NODE__MAX] = { 0 };
    unsigned depth = 0;

    {
        GRAPH_RDLOCK_GUARD_MAINLOOP();
        BlockDriverState *bs = bdrv_skip_filters(blk_bs(dev));

        for (; bs && depth < CHAIN_MAX; depth++) {
            BdrvChild *c;

            if (bs->drv && bs->drv->protocol_name) {
                found[depth][DEDUP_NODE_SELF] = bs;
            }
            QLIST_FOREACH(c, &bs->children, next) {
                if (c == bs->file) {
                    found[depth][DEDUP_NODE_FILE] = c->bs;
                } else if (!strcmp(c->name, "data-file")) {
                    found[depth][DEDUP_NODE_DATA_FILE] = c->bs;
                }
            }
            bs = bdrv_cow_bs(bs);
            bs = bs ? bdrv_skip_filters(bs) : NULL;
        }
    }
    for (unsigned i = 0; i < depth; i++) {
        for (unsigned node = 0; node < DEDUP_NODE__MAX; node++) {
            if (found[i][node]) {
                open_target(d, target_index(i, node), found[i][node]);
            }
        }
    }
}

/*
 * Activating an inactive node makes its format forget its metadata under
 * whatever read is under way, and we do not wait for reads at the switch-over.
 * A mirror's target is active from the start; raw has nothing to forget.
 */
static bool own_is_safe(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    for (; bs; bs = bdrv_filter_or_cow_bs(bs)) {
        if ((bs->open_flags & BDRV_O_INACTIVE) && !bs->drv->is_filter &&
            strcmp(bs->drv->format_name, "raw") && !bs->drv->protocol_name) {
            return false;
        }
    }
    return true;
}

void dedup_fetch_open_nodes(DedupFetch *f)
{
    for (unsigned i = 0; i < f->disks->len; i++) {
        DedupFetchDisk *d = g_ptr_array_index(f->disks, i);
        BlockBackend *dev = dedup_blk_by_path(d->path);

        if (!dev || !blk_bs(dev)) {
            continue;
        }
        d->slot = dedup_slot_of(dev);
        if (d->copy == DEDUP_COPY_SHARED) {
            open_shared(d, dev);
        } else if (own_is_safe(blk_bs(dev))) {
            open_target(d, 0, blk_bs(dev));
        } else {
            warn_report("dedup: the own copy of %s is neither raw nor the "
                        "target of a mirror; its pages come from the source",
                        d->path);
        }
    }
}

void dedup_fetch_free_disk(void *opaque)
{
    DedupFetchDisk *d = opaque;

    for (unsigned i = 0; i < d->targets->len; i++) {
        BlockBackend *blk = g_ptr_array_index(d->targets, i);

        if (blk) {
            blk_unref(blk);
        }
    }
    g_ptr_array_unref(d->targets);
    dedup_extents_free(&d->extents);
    g_free(d->path);
    g_free(d);
}
