/*
 * Source: arming, the beginning and the end of an armed migration, figures
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/lockable.h"
#include "qapi/error.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-visit-dedup.h"
#include "crypto/random.h"
#include "exec/target_page.h"
#include "migration/misc.h"
#include "system/block-backend.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "../options.h"
#include "aside.h"
#include "hold.h"
#include "source-int.h"
#include "trace.h"

DedupSource src;

void source_set_state(DedupSourceState state)
{
    trace_dedup_source_state(DedupSourceState_str(state));
    qatomic_set(&src.state, state);
}

void G_GNUC_PRINTF(1, 2) source_set_reason(const char *fmt, ...)
{
    va_list ap;

    QEMU_LOCK_GUARD(&src.lock);
    if (!src.reason) {
        va_start(ap, fmt);
        src.reason = g_strdup_vprintf(fmt, ap);
        va_end(ap);
        trace_dedup_source_reason(src.reason);
    }
}

/* Why this migration cannot carry records, or NULL */
static const char *ineligible(void)
{
    if (qemu_target_page_size() != DEDUP_PAGE_SIZE) {
        return "the guest's pages are not 4 KiB";
    }
    if (migrate_mapped_ram()) {
        return "mapped-ram migration";
    }
    if (migrate_background_snapshot()) {
        return "background snapshot";
    }
    if (migrate_colo()) {
        return "COLO";
    }
    if (migrate_get_current()->rdma_migration) {
        return "RDMA migration";
    }
    if (!migrate_return_path() && !migrate_postcopy_ram()) {
        return "the migration has no return path";
    }
    return NULL;
}

static void disk_free(void *opaque)
{
    GPtrArray *rubbish = dedup_rubbish_new();
    SourceDisk *d = opaque;

    dedup_resolver_free(d->resolver);
    dedup_extents_discard(&d->extents, rubbish);
    dedup_rubbish_free(rubbish);
    blk_unref(d->blk);
    g_free(d->path);
    g_free(d);
}

static void disk_prepare(BlockBackend *blk)
{
    DedupDiskList *x;
    DedupCopy copy = src.copy;
    unsigned slot;
    SourceDisk *d;
    char *path;

    if (!blk_get_attached_dev(blk) || !blk_is_inserted(blk) ||
        src.disks->len == DEDUP_WIRE_MAX_DISKS) {
        return;
    }
    for (x = src.exceptions; x; x = x->next) {
        if (dedup_blk_by_device(x->value->device, NULL) == blk) {
            if (x->value->has_use && !x->value->use) {
                return;
            }
            if (x->value->has_copy) {
                copy = x->value->copy;
            }
        }
    }
    slot = dedup_slot_of(blk);
    path = dedup_blk_path(blk);
    if (!slot || !path) {
        g_free(path);
        return;
    }
    d = g_new0(SourceDisk, 1);
    d->blk = blk;
    blk_ref(blk);
    d->path = path;
    d->copy = copy;
    d->length = MAX(0, blk_getlength(blk));
    if (copy == DEDUP_COPY_SHARED) {
        d->resolver = dedup_resolver_new(blk);
    }
    g_ptr_array_add(src.disks, d);
    src.disk_of_slot[slot] = src.disks->len;
}

/* BQL, before the migration thread exists */
static void source_prepare(void)
{
    const char *why = ineligible();
    DedupRam *dr;
    Error *err = NULL;

    if (why) {
        source_set_reason("%s", why);
        source_set_state(DEDUP_SOURCE_STATE_DONE);
        return;
    }
    if (qcrypto_random_bytes(src.key, sizeof(src.key), &err) < 0) {
        source_set_reason("no random key: %s", error_get_pretty(err));
        error_free(err);
        source_set_state(DEDUP_SOURCE_STATE_DONE);
        return;
    }
    dedup_ram_make_all();
    dedup_outstanding_init(&src.out);
    dedup_deferred_init(&src.deferred);
    for (dr = dedup_ram_first(); dr; dr = dedup_ram_next(dr)) {
        if (migrate_ram_is_ignored(dr->rb) ||
            src.out.rams->len == DEDUP_WIRE_MAX_BLOCKS) {
            continue;
        }
        dr->ids = g_try_new0(uint32_t, dr->pages);
        dr->direct = bitmap_try_new(dr->pages);
        dr->waiting = bitmap_try_new(dr->pages);
        dr->later = bitmap_try_new(dr->pages);
        dr->owed = bitmap_try_new(dr->pages);
        dr->told = bitmap_try_new(dr->pages);
        if (!dr->ids || !dr->direct || !dr->waiting || !dr->later ||
            !dr->owed || !dr->told) {
            g_clear_pointer(&dr->ids, g_free);
            g_clear_pointer(&dr->direct, g_free);
            g_clear_pointer(&dr->waiting, g_free);
            g_clear_pointer(&dr->later, g_free);
            g_clear_pointer(&dr->owed, g_free);
            g_clear_pointer(&dr->told, g_free);
            continue;
        }
        dr->redirtied = src.put_off_wanted ? bitmap_try_new(dr->pages) : NULL;
        dr->index = src.out.rams->len;
        g_ptr_array_add(src.out.rams, dr);
    }
    src.disks = g_ptr_array_new_with_free_func(disk_free);
    memset(src.disk_of_slot, 0, sizeof(src.disk_of_slot));
    for (BlockBackend *b = blk_all_next(NULL); b && src.records;
         b = blk_all_next(b)) {
        disk_prepare(b);
    }
    src.leaves = 0;
    source_hints_prepare();
    src.running = src.idle = src.pass_done = false;
    src.started_us = 0;
    src.pass_ram = 0;
    src.pass_page = 0;
    src.nbatch = 0;
    src.epoch_sent = src.unsynced = 0;
    src.last_exact_us = src.hold_since_us = 0;
    src.closing = false;
    src.lazy = src.handed_over = src.requested = false;
    src.put_off = src.put_off_wanted;
    src.put_off_last = src.finished = false;
    dedup_redirtied_init(&src.redirtied, now_us());
    src.later = 0;
    src.scan_ram = 0;
    src.scan_page = 0;
    src.scanned = src.violated = false;
    src.taken = 0;
    g_array_set_size(src.taking, 0);
    WITH_QEMU_LOCK_GUARD(&src.lock) {
        g_array_set_size(src.inbox, 0);
        src.answered = 0;
        src.hello = src.pong = false;
        src.peer_features = 0;
        src.listening = true;
    }
    src.prepared = true;
    source_set_state(DEDUP_SOURCE_STATE_NEGOTIATING);
}

/* BQL; the migration thread is gone or will not come back to us */
static void source_release(void)
{
    dedup_compress_end();
    if (src.prepared) {
        src.fig.peer_pages = stat64_get(&mig_stats.normal_pages);
        src.fig.zero_pages = stat64_get(&mig_stats.zero_pages);
        WITH_QEMU_LOCK_GUARD(&src.lock) {
            src.listening = false;
        }
        src.running = src.prepared = src.postcopy = src.put_off = false;
        dedup_outstanding_free(&src.out);
        dedup_deferred_free(&src.deferred);
        g_clear_pointer(&src.disks, g_ptr_array_unref);
        g_clear_pointer(&src.hint_disks, g_byte_array_unref);
    }
    g_clear_pointer(&src.exceptions, qapi_free_DedupDiskList);
    if (src.ever) {
        source_set_state(DEDUP_SOURCE_STATE_DONE);
    }
}

static int source_notify(NotifierWithReturn *n, MigrationEvent *e,
                         Error **errp)
{
    DEDUP_HOLD("bql", "migration-event");

    if (e->type == MIG_EVENT_PRECOPY_SETUP) {
        if (src.state == DEDUP_SOURCE_STATE_ARMED) {
            source_prepare();
        }
    } else if (e->type == MIG_EVENT_PRECOPY_DONE && src.handed_over) {
        src.handed_over = false;        /* post-copy: it has only begun */
    } else if (src.prepared || src.state == DEDUP_SOURCE_STATE_DONE) {
        /* Not when armed: then it was another migration that has ended */
        source_release();
    }
    return 0;
}

/* The rest is called under the BQL */

bool dedup_source_arm(bool has_copy, DedupCopy copy, DedupDiskList *disks,
                      bool resend, bool records, bool lazy, bool put_off,
                      const DedupLimits *limits, Error **errp)
{
    if (migration_is_running() || src.prepared) {
        error_setg(errp, "A migration is running; arm before it starts");
        return false;
    }
    for (DedupDiskList *x = disks; x; x = x->next) {
        if (!dedup_blk_by_device(x->value->device, errp)) {
            return false;
        }
    }
    qapi_free_DedupDiskList(src.exceptions);
    src.exceptions = QAPI_CLONE(DedupDiskList, disks);
    src.copy = has_copy ? copy : DEDUP_COPY_SHARED;
    src.resend = resend;
    src.limits = *limits;
    src.records = records;
    src.lazy_wanted = lazy;
    src.put_off_wanted = put_off;
    src.ever = true;
    memset(&src.fig, 0, sizeof(src.fig));
    WITH_QEMU_LOCK_GUARD(&src.lock) {
        g_clear_pointer(&src.reason, g_free);
        src.peer_backlog = src.peer_rate = 0;
    }
    source_set_state(DEDUP_SOURCE_STATE_ARMED);
    return true;
}

void dedup_source_disarm(void)
{
    DedupSourceState was = qatomic_cmpxchg(&src.state,
                                           DEDUP_SOURCE_STATE_ACTIVE,
                                           DEDUP_SOURCE_STATE_DRAINING);

    if (was == DEDUP_SOURCE_STATE_NEGOTIATING) {
        was = qatomic_cmpxchg(&src.state, was, DEDUP_SOURCE_STATE_DONE);
        if (was == DEDUP_SOURCE_STATE_NEGOTIATING) {
            source_set_reason("disarmed during the migration");
            return;
        }
        was = qatomic_cmpxchg(&src.state, DEDUP_SOURCE_STATE_ACTIVE,
                              DEDUP_SOURCE_STATE_DRAINING);
    }
    if (was == DEDUP_SOURCE_STATE_ACTIVE) {
        source_set_reason("disarmed during the migration");
    } else if (was == DEDUP_SOURCE_STATE_ARMED) {
        g_clear_pointer(&src.exceptions, qapi_free_DedupDiskList);
        source_set_state(DEDUP_SOURCE_STATE_IDLE);
    }
}

DedupSourceInfo *dedup_source_query(void)
{
    DedupCompressFigures fig;
    DedupSourceInfo *info;

    if (!src.ever) {
        return NULL;
    }
    info = g_new0(DedupSourceInfo, 1);
    *info = src.fig;
    info->state = qatomic_read(&src.state);
    if (src.prepared) {
        info->peer_pages = stat64_get(&mig_stats.normal_pages);
        info->zero_pages = stat64_get(&mig_stats.zero_pages);
        info->outstanding = qatomic_read(&src.out.count);
    }
    dedup_compress_query(&fig);
    info->compressed_pages = fig.pages;
    info->compressed_bytes = fig.bytes;
    info->incompressible_pages = fig.plain_pages;
    info->uncompressed_pages = fig.skipped_pages;
    info->compression_ns = fig.ns;
    info->compression_threads = fig.threads;
    info->compression_level = fig.level;
    WITH_QEMU_LOCK_GUARD(&src.lock) {
        info->reason = g_strdup(src.reason);
    }
    return info;
}

void dedup_source_init(void)
{
    qemu_mutex_init(&src.lock);
    qemu_cond_init(&src.wake);
    source_answers_init();
    dedup_compress_init();
    migration_add_notifier(&src.notifier, source_notify);
}
