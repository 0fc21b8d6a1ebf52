/*
 * QMP and HMP commands; start-up
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/coroutine.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "qobject/qdict.h"
#include "monitor/hmp.h"
#include "monitor/monitor.h"
#include "exec/target_page.h"
#include "hw/qdev-core.h"
#include "system/block-backend.h"
#include "compress.h"
#include "dedup-int.h"
#include "hold.h"

char *dedup_blk_path(BlockBackend *blk)
{
    DeviceState *dev = blk_get_attached_dev(blk);

    return dev ? object_get_canonical_path(OBJECT(dev)) : NULL;
}

BlockBackend *dedup_blk_by_path(const char *path)
{
    for (BlockBackend *b = blk_all_next(NULL); b; b = blk_all_next(b)) {
        g_autofree char *p = dedup_blk_path(b);

        if (p && !strcmp(p, path)) {
            return b;
        }
    }
    return NULL;
}

BlockBackend *dedup_blk_by_device(const char *id, Error **errp)
{
    g_autofree char *path = *id == '/' ? g_strdup(id) :
        g_strconcat("/machine/peripheral/", id, NULL);
    g_autofree char *root = NULL;
    BlockBackend *blk = blk_by_qdev_id(id, NULL);
    Object *obj;

    if (blk) {
        return blk;
    }
    obj = object_resolve_path(path, NULL);
    if (!obj) {
        error_setg(errp, "Device '%s' not found", id);
        return NULL;
    }
    /* virtio-blk-pci has the ID, the virtio-blk-device in it the disk */
    root = object_get_canonical_path(obj);
    for (blk = blk_all_next(NULL); blk; blk = blk_all_next(blk)) {
        g_autofree char *inside = dedup_blk_path(blk);

        if (inside && g_str_has_prefix(inside, root) &&
            inside[strlen(root)] == '/') {
            return blk;
        }
    }
    error_setg(errp, "Device '%s' has no disk", id);
    return NULL;
}

/* Between two parts of what is forgotten others have their turn */
#define TURN_NS         (100 * SCALE_US)

void coroutine_fn qmp_x_dedup_track(bool enable, Error **errp)
{
    if (enable && qemu_target_page_size() != DEDUP_PAGE_SIZE) {
        error_setg(errp, "Only machines with pages of 4 KiB are supported");
        return;
    }
    dedup_track(enable);
    while (!enable && dedup_forget_hints()) {
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, TURN_NS);
    }
}

void qmp_x_dedup_arm(bool has_copy, DedupCopy copy, bool has_disks,
                     DedupDiskList *disks, bool has_resend, bool resend,
                     bool has_fetch_rate, uint64_t fetch_rate,
                     bool has_fetch_iops, uint32_t fetch_iops,
                     bool has_records, bool records, bool has_lazy, bool lazy,
                     bool has_defer_redirtied, bool defer_redirtied,
                     DedupCompression *compression, Error **errp)
{
    DedupLimits limits = {
        .bytes = has_fetch_rate ? fetch_rate : 0,
        .reads = has_fetch_iops ? fetch_iops : 0,
    };
    DEDUP_HOLD("bql", "x-dedup-arm");
    unsigned threads = compression && compression->has_threads ?
                       compression->threads : 0;
    unsigned level = compression && compression->has_level ?
                     compression->level : 0;

    if (compression && ((compression->has_threads && !threads) ||
                        threads > DEDUP_COMPRESS_THREADS_MAX)) {
        error_setg(errp, "Parameter 'threads' expects a number from 1 to %d",
                   DEDUP_COMPRESS_THREADS_MAX);
        return;
    }
    if (compression && ((compression->has_level && !level) ||
                        level > DEDUP_COMPRESS_LEVEL_MAX)) {
        error_setg(errp, "Parameter 'level' expects a number from 1 to %d",
                   DEDUP_COMPRESS_LEVEL_MAX);
        return;
    }
    if (dedup_source_arm(has_copy, copy, has_disks ? disks : NULL,
                         !has_resend || resend, !has_records || records,
                         has_lazy && lazy,
                         has_defer_redirtied && defer_redirtied, &limits,
                         errp)) {
        dedup_compress_want(compression, threads, level);
    }
}

void qmp_x_dedup_disarm(Error **errp)
{
    dedup_source_disarm();
}

void qmp_x_dedup_load_map(const char *fdname, Error **errp)
{
    DEDUP_HOLD("bql", "x-dedup-load-map");
    int fd = monitor_get_fd(monitor_cur(), fdname, errp);

    if (fd >= 0) {
        dedup_map_load(fd, errp);
    }
}

DedupInfo *qmp_query_x_dedup(Error **errp)
{
    DEDUP_HOLD("bql", "query-x-dedup");
    DedupInfo *info = g_new0(DedupInfo, 1);

    info->tracking = dedup_tracking();
    info->hints = g_new0(DedupHintsInfo, 1);
    dedup_hints_query(info->hints);
    dedup_map_query(info->hints);
    info->index = dedup_index_query();
    info->source = dedup_source_query();
    info->incoming = dedup_incoming_query();
    return info;
}

void coroutine_fn hmp_x_dedup_track(Monitor *mon, const QDict *qdict)
{
    Error *err = NULL;

    qmp_x_dedup_track(qdict_get_bool(qdict, "enable"), &err);
    hmp_handle_error(mon, err);
}

void hmp_x_dedup_arm(Monitor *mon, const QDict *qdict)
{
    bool own = qdict_get_try_bool(qdict, "own", false);
    Error *err = NULL;

    qmp_x_dedup_arm(true, own ? DEDUP_COPY_OWN : DEDUP_COPY_SHARED, false,
                    NULL, false, false, false, 0, false, 0, false, false,
                    false, false, false, false, NULL, &err);
    hmp_handle_error(mon, err);
}

void hmp_x_dedup_disarm(Monitor *mon, const QDict *qdict)
{
    qmp_x_dedup_disarm(NULL);
}

void hmp_info_dedup(Monitor *mon, const QDict *qdict)
{
    DedupInfo *info = qmp_query_x_dedup(NULL);
    DedupIndexInfo *x = info->index;
    DedupSourceInfo *s = info->source;
    DedupIncomingInfo *d = info->incoming;

    monitor_printf(mon, "tracking: %s\n", info->tracking ? "on" : "off");
    monitor_printf(mon, "hints: %" PRIu64 " pages, %" PRIu64 " bytes; map %s"
                   " (%" PRIu64 " pages, %" PRIu64 " kept, %" PRIu64
                   " skipped)%s%s\n",
                   info->hints->pages, info->hints->memory_bytes,
                   DedupMapState_str(info->hints->map_state),
                   info->hints->map_pages, info->hints->map_kept,
                   info->hints->map_skipped,
                   info->hints->map_error ? ": " : "",
                   info->hints->map_error ?: "");
    if (x) {
        monitor_printf(mon, "index: %s, %" PRIu64 " of %" PRIu64 " pages "
                       "found, %" PRIu64 " changed; %" PRIu64 " of %" PRIu64
                       " bytes done%s%s\n", DedupIndexState_str(x->state),
                       x->found_pages, x->pages, x->changed_pages,
                       x->done_bytes, x->bytes, x->reason ? ": " : "",
                       x->reason ?: "");
    }
    if (s) {
        monitor_printf(mon, "source: %s%s%s\n", DedupSourceState_str(s->state),
                       s->reason ? ": " : "", s->reason ?: "");
        monitor_printf(mon, "  pages: %" PRIu64 " peer, %" PRIu64 " zero, %"
                       PRIu64 " storage\n", s->peer_pages, s->zero_pages,
                       s->storage_pages);
        monitor_printf(mon, "  records: %" PRIu64 " pages, %" PRIu64
                       " bytes, %" PRIu64 " outstanding\n", s->record_pages,
                       s->record_bytes, s->outstanding);
        monitor_printf(mon, "  refused: %" PRIu64 " digest, %" PRIu64
                       " io; resent %" PRIu64 ", superseded %" PRIu64
                       ", final %" PRIu64 "\n", s->nack_digest, s->nack_io,
                       s->resent_pages, s->superseded_pages, s->final_pages);
        monitor_printf(mon, "  compressed: %" PRIu64 " pages, %" PRIu64
                       " bytes, %" PRIu64 " ms in %u threads; %" PRIu64
                       " incompressible, %" PRIu64 " not tried\n",
                       s->compressed_pages, s->compressed_bytes,
                       s->compression_ns / 1000000, s->compression_threads,
                       s->incompressible_pages, s->uncompressed_pages);
    }
    if (d) {
        monitor_printf(mon, "incoming: %s, %" PRIu64 " records, %" PRIu64
                       " fetched, %" PRIu64 " superseded, refused %" PRIu64
                       " digest %" PRIu64 " io\n",
                       d->active ? "active" : "over", d->record_pages,
                       d->fetched_pages, d->superseded_pages, d->nack_digest,
                       d->nack_io);
        monitor_printf(mon, "  reads: %" PRIu64 ", %" PRIu64 " bytes, mean %"
                       PRIu64 " us, max %" PRIu64 " us; backlog %" PRIu64
                       "\n", d->reads, d->bytes_read,
                       d->reads ? d->read_ns / d->reads / 1000 : 0,
                       d->max_read_ns / 1000, d->backlog);
        monitor_printf(mon, "  decompressed: %" PRIu64 " pages, %" PRIu64
                       " bytes, %" PRIu64 " ms in %u threads\n",
                       d->compressed_pages, d->compressed_bytes,
                       d->compression_ns / 1000000, d->compression_threads);
    }
#ifdef DEDUP_FAULTY
    {
        g_autofree char *holds = dedup_hold_report();

        monitor_puts(mon, holds);
    }
#endif
    qapi_free_DedupInfo(info);
}

void dedup_init(void)
{
    dedup_inject_init();
    dedup_hints_init();
    dedup_index_init();
    dedup_source_init();
    dedup_disk_seed_init();
}
