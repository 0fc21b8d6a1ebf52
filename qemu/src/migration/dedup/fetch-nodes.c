/*
 * The disks a fetcher reads: which node, and where in it
 *
 * For a disk both sides share, the node below the format at the host offset
 * that the source resolved (the format's own metadata is stale until the
 * switch-over); for an own copy, the format node at the guest offset.
 *
 * Nodes are opened and closed in bottom halves of the main loop, because
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
#include "aside.h"
#include "fetch-int.h"

#define CHAIN_MAX   256

/* Index in DedupFetchDisk.targets; an own copy has only the first */
static unsigned target_index(unsigned depth, DedupNode node)
{
    return depth * DEDUP_NODE__MAX + node;
}

bool dedup_fetch_add_disk(DedupFetch *f, char *path, DedupCopy copy)
{
    DedupFetchDisk *d;

    for (unsigned i = 0; i < f->disks->len; i++) {
        d = g_ptr_array_index(f->disks, i);
        if (!strcmp(d->path, path)) {
            g_free(path);
            return false;       /* each is opened */
        }
    }
    d = g_new0(DedupFetchDisk, 1);
    d->path = path;
    d->copy = copy;
    d->targets = g_ptr_array_new();
    g_ptr_array_add(f->disks, d);
    return true;
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
    return dedup_extents_add(&d->extents, e, &f->leaves);
}

bool dedup_fetch_locate(DedupFetch *f, DedupFetchRecord *rec)
{
    DedupFetchDisk *d = g_ptr_array_index(f->disks, rec->disk);
    uint64_t guest = rec->sector * DEDUP_SECTOR;
    const DedupExtent *e;
    DedupTarget *t;

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
    t = rec->target < d->targets->len
        ? g_ptr_array_index(d->targets, rec->target) : NULL;
    /* When the guest starts, its nodes are activated and drained */
    return t && !(qatomic_read(&f->lazy) && dedup_target_is_guests(t));
}

DedupTarget *dedup_fetch_target(DedupFetch *f, const DedupFetchRecord *rec)
{
    DedupFetchDisk *d = g_ptr_array_index(f->disks, rec->disk);

    return g_ptr_array_index(d->targets, rec->target);
}

/* Takes over @err, which is set if @t is NULL */
static void add_target(DedupFetchDisk *d, unsigned index, DedupTarget *t,
                       Error *err)
{
    if (!t) {
        warn_report("dedup: some or all pages of %s come from the source: %s",
                    d->path, error_get_pretty(err));
        if (!d->refused) {
            d->refused = g_strdup(error_get_pretty(err));
        }
        error_free(err);
        return;
    }
    if (d->targets->len <= index) {
        g_ptr_array_set_size(d->targets, index + 1);
    }
    g_ptr_array_index(d->targets, index) = t;
}

/* The children of the node at one depth; collected first, then attached */
static void open_shared(DedupFetch *f, DedupFetchDisk *d, BlockBackend *dev)
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
            for (unsigned node = 0; node < DEDUP_NODE__MAX; node++) {
                if (found[depth][node]) {
                    bdrv_ref(found[depth][node]);
                }
            }
            bs = bdrv_cow_bs(bs);
            bs = bs ? bdrv_skip_filters(bs) : NULL;
        }
    }
    for (unsigned i = 0; i < depth; i++) {
        for (unsigned node = 0; node < DEDUP_NODE__MAX; node++) {
            if (found[i][node]) {
                Error *err = NULL;
                DedupTarget *t = dedup_target_shared(found[i][node], f->ctx,
                                                     &err);

                add_target(d, target_index(i, node), t, err);
                bdrv_unref(found[i][node]);
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
            open_shared(f, d, dev);
        } else {
            Error *err = NULL;
            DedupTarget *t = NULL;

            if (own_is_safe(blk_bs(dev))) {
                t = dedup_target_own(blk_bs(dev), &err);
            } else {
                error_setg(&err, "the own copy is neither raw nor the target "
                           "of a mirror");
            }
            add_target(d, 0, t, err);
        }
    }
}

void dedup_fetch_cut(DedupFetch *f)
{
    for (unsigned i = 0; i < f->disks->len; i++) {
        DedupFetchDisk *d = g_ptr_array_index(f->disks, i);

        for (unsigned k = 0; k < d->targets->len; k++) {
            if (g_ptr_array_index(d->targets, k)) {
                dedup_target_cut(g_ptr_array_index(d->targets, k));
            }
        }
    }
}

DedupRefusedDiskList *dedup_fetch_refused(DedupFetch *f)
{
    DedupRefusedDiskList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < f->disks->len; i++) {
        DedupFetchDisk *d = g_ptr_array_index(f->disks, i);

        if (d->refused) {
            DedupRefusedDisk *one = g_new0(DedupRefusedDisk, 1);

            one->device = g_strdup(d->path);
            one->reason = g_strdup(d->refused);
            QAPI_LIST_APPEND(tail, one);
        }
    }
    return list;
}

void dedup_fetch_free_disk(void *opaque)
{
    GPtrArray *rubbish = dedup_rubbish_new();
    DedupFetchDisk *d = opaque;

    for (unsigned i = 0; i < d->targets->len; i++) {
        DedupTarget *t = g_ptr_array_index(d->targets, i);

        if (t) {
            dedup_target_free(t);
        }
    }
    g_free(d->refused);
    g_ptr_array_unref(d->targets);
    dedup_extents_discard(&d->extents, rubbish);
    dedup_rubbish_free(rubbish);
    g_free(d->path);
    g_free(d);
}
