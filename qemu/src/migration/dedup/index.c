/*
 * Content index: places of pages that nobody recorded or listed
 *
 * The guest's disks are read once, from begin to end, and each block is held
 * against the pages of memory without a hint.  No help of the guest is
 * needed, so it serves any: Windows, one whose I/O was not tracked, file
 * systems that the lister does not know.
 *
 *   command (BQL)       bounds the memory it takes, finds the disks
 *   thread   memory     hash each page that is not zero and has no hint
 *            disks      hash each block; where a page has the same hash and
 *                       the very same bytes, the block is its hint
 *   main loop, disk's   each read of the thread, 1 MiB at a time
 *   context
 *
 * The memory is hashed first, because it is smaller: 4 MiB are taken for a
 * GiB of it, however large the disks are, and hints are there as soon as
 * they are found.  What the guest reads from its disks meanwhile is for
 * tracking to record.
 *
 * Such a hint is one as any other: it may be outdated when it is used, and
 * is verified then.  It takes no other hint's place.  Nothing but figures
 * leaves QEMU.
 *
 * Between two reads nothing of the disk is held: it can be unplugged, and
 * block jobs come and go.  The reads pass by the limits of the guest's I/O,
 * and have one of their own.  They make no hints, as they do not go into
 * guest memory.  It ends when a migration begins: from then on the
 * destination may write to the images.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "crypto/random.h"
#include "exec/target_page.h"
#include "migration/misc.h"
#include "system/runstate.h"
#include "hold.h"
#include "index-int.h"
#include "trace.h"

#define RATE_DEFAULT    (200 * MiB)
#define MEMORY_DEFAULT  (1 * GiB)
#define SLEEP_NS        (10 * SCALE_MS) /* between two looks at @stop */

DedupIndexNow index_now;

void index_set_reason(char *reason)
{
    QEMU_LOCK_GUARD(&index_now.lock);
    if (index_now.reason) {
        g_free(reason);
    } else {
        index_now.reason = reason;
    }
}

static void stop(const char *why)
{
    QEMU_LOCK_GUARD(&index_now.lock);
    if (index_now.busy && !index_now.stop) {
        qatomic_set(&index_now.stop, true);
        g_free(index_now.reason);
        index_now.reason = g_strdup(why);
    }
}

void index_sleep_until(int64_t ns)
{
    int64_t left;

    while (!index_stopped() && (left = ns - get_clock()) > 0) {
        g_usleep(DIV_ROUND_UP(MIN(left, SLEEP_NS), SCALE_US));
    }
}

uint64_t index_hash(Index *x, const void *page)
{
    uint8_t digest[DEDUP_DIGEST_LEN];
    uint64_t hash;

    /* With a key: nobody can make pages that all go under one head */
    dedup_digest(x->key, page, digest);
    memcpy(&hash, digest, sizeof(hash));
    return hash;
}

static void index_free(Index *x)
{
    for (unsigned i = 0; i < x->disks->len; i++) {
        g_free(g_array_index(x->disks, IndexDisk, i).device);
    }
    g_array_free(x->disks, true);
    g_array_free(x->rams, true);
    dedup_content_free(x->table);
    qemu_vfree(x->buf);
    qemu_event_destroy(&x->done);
    g_free(x);
}

static void *index_thread(void *opaque)
{
    Index *x = opaque;
    int64_t begun = get_clock();
    bool good;

    rcu_register_thread();
    x->table = dedup_content_new(x->pages);
    if (x->table) {
        good = index_scan_memory(x) && index_read_disks(x);
    } else {
        index_set_reason(g_strdup("not enough memory for the table of pages"));
        good = false;
    }
    WITH_QEMU_LOCK_GUARD(&index_now.lock) {
        index_now.fig.state = index_stopped() ? DEDUP_INDEX_STATE_CANCELLED :
                        good ? DEDUP_INDEX_STATE_DONE :
                        DEDUP_INDEX_STATE_FAILED;
        index_now.fig.ns = get_clock() - begun;
        index_now.busy = false;
        trace_dedup_index_over(DedupIndexState_str(index_now.fig.state),
                               index_now.fig.pages, x->found,
                               index_now.fig.read_bytes);
    }
    index_free(x);
    rcu_unregister_thread();
    return NULL;
}

/* Commands.  BQL. */

static bool may_begin(Error **errp)
{
    if (qemu_target_page_size() != DEDUP_PAGE_SIZE) {
        error_setg(errp, "Only machines with pages of 4 KiB are supported");
    } else if (runstate_check(RUN_STATE_INMIGRATE) ||
               migration_in_incoming_postcopy()) {
        error_setg(errp, "The guest's memory has not arrived yet");
    } else if (migration_is_running()) {
        error_setg(errp, "A migration is running");
    } else if (index_now.busy) {
        error_setg(errp, "The disks are being indexed already");
    } else {
        return true;
    }
    return false;
}

static bool prepare(Index *x, uint64_t memory, Error **errp)
{
    uint64_t bound;

    dedup_ram_make_all();
    index_find_memory(x);
    if (!x->pages || x->pages > DEDUP_CONTENT_MAX_PAGES) {
        error_setg(errp, "The guest has no memory, or too much of it");
        return false;
    }
    bound = dedup_content_bound(x->pages);
    if (bound > memory) {
        error_setg(errp, "The index could take %" PRIu64 " bytes of memory, "
                   "%" PRIu64 " are allowed: raise 'memory'", bound, memory);
        return false;
    }
    return qcrypto_random_bytes(x->key, sizeof(x->key), errp) == 0;
}

void qmp_x_dedup_index_disks(bool has_devices, strList *devices,
                             bool has_rate, uint64_t rate, bool has_memory,
                             uint64_t memory, bool has_cached, bool cached,
                             Error **errp)
{
    DEDUP_HOLD("bql", "x-dedup-index-disks");
    QemuThread thread;
    Index *x;

    QEMU_LOCK_GUARD(&index_now.lock);
    if (!may_begin(errp)) {
        return;
    }
    x = g_new0(Index, 1);
    x->disks = g_array_new(false, false, sizeof(IndexDisk));
    x->rams = g_array_new(false, false, sizeof(IndexRam));
    x->rate = has_rate ? rate : RATE_DEFAULT;
    qemu_event_init(&x->done, false);
    memset(&index_now.fig, 0, sizeof(index_now.fig));
    g_clear_pointer(&index_now.reason, g_free);
    if (!index_find_disks(x, has_devices, devices, has_cached && cached,
                          errp) ||
        !prepare(x, has_memory ? memory : MEMORY_DEFAULT, errp)) {
        index_now.ever = false;
        index_free(x);
        return;
    }
    index_now.ever = index_now.busy = true;
    index_now.fig.state = DEDUP_INDEX_STATE_MEMORY;
    qatomic_set(&index_now.stop, false);
    qemu_thread_create(&thread, "dedup-index", index_thread, x,
                       QEMU_THREAD_DETACHED);
}

void qmp_x_dedup_index_cancel(Error **errp)
{
    stop("cancelled");
}

DedupIndexInfo *dedup_index_query(void)
{
    DedupIndexInfo *info;

    QEMU_LOCK_GUARD(&index_now.lock);
    if (!index_now.ever) {
        return NULL;
    }
    info = g_new(DedupIndexInfo, 1);
    *info = index_now.fig;
    info->reason = g_strdup(index_now.reason);
    return info;
}

static int index_notify(NotifierWithReturn *n, MigrationEvent *e,
                        Error **errp)
{
    if (e->type == MIG_EVENT_PRECOPY_SETUP) {
        stop("a migration began");
    }
    return 0;
}

void dedup_index_init(void)
{
    static NotifierWithReturn notifier;

    qemu_mutex_init(&index_now.lock);
    migration_add_notifier(&notifier, index_notify);
}
