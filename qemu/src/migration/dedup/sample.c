/*
 * Sample: how many hints of each disk still hold
 *
 * A page that the guest has written to keeps its hint (hints.c), so the
 * number of hints says little about what a migration could leave out.  Some
 * hints of each disk are picked at random, what the disk holds there is
 * read, and compared with the page.
 *
 *   command (main loop)                     reader of a disk (its context)
 *   -------------------                     ------------------------------
 *   count all hints, pick some of each disk
 *   start the readers --------------------> read, compare, count
 *   wait until they end, 0.5 s at most,       |
 *   or until the guest is stopped or          |
 *   migrated                                  |
 *   quit = true, return what was counted      ends after the read under way
 *
 * While a command waits, the monitor takes no other one.  So the command
 * never waits for storage: a read that hangs is left behind and frees what
 * it uses when it ends.  The reads go into a buffer that is no guest memory:
 * they make no hints.  A guest that is stopped or migrated has its hints
 * counted and nothing else: its memory may not have arrived yet, its disks
 * may be another QEMU's already.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/coroutine.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "block/aio.h"
#include "hw/qdev-core.h"
#include "migration/misc.h"
#include "system/block-backend.h"
#include "system/runstate.h"
#include "dedup-int.h"
#include "hold.h"

#define PAGES_DEFAULT   512
#define PAGES_MAX       4096
#define TURN_PAGES      DEDUP_STEPS                 /* counted at once */
#define TURN_NS         (100 * SCALE_US)
#define POLL_NS         (2 * SCALE_MS)
#define READ_NS         (500 * SCALE_MS)

typedef struct SamplePick {
    DedupRam *dr;               /* it may be gone: see sample_hint() */
    uint64_t page;
} SamplePick;

typedef struct SampleDisk {
    unsigned ref;               /* command, reader */
    BlockBackend *blk;
    char *device;
    unsigned slot;
    uint64_t hints;
    uint64_t candidates;        /* of hints, those that may be picked */
    SamplePick *picks;
    unsigned npicks, quota;

    bool quit;                  /* set by the command */
    /* By the reader */
    unsigned sampled, valid;
    bool done;
} SampleDisk;

static void disk_free_bh(void *opaque)
{
    SampleDisk *d = opaque;

    blk_unref(d->blk);
    g_free(d->device);
    g_free(d->picks);
    g_free(d);
}

static void disk_unref(SampleDisk *d)
{
    if (qatomic_fetch_dec(&d->ref) == 1) {
        aio_bh_schedule_oneshot(qemu_get_aio_context(), disk_free_bh, d);
    }
}

static void disk_leave(void *opaque)
{
    SampleDisk *d = opaque;

    qatomic_set(&d->quit, true);
    disk_unref(d);
}

static bool may_read(void)
{
    return runstate_is_running() && !migration_is_running() &&
           !migration_in_incoming_postcopy();
}

/* What x-dedup-arm takes: the ID of the device or of the one it is part of */
static char *device_name(BlockBackend *blk)
{
    Object *obj = OBJECT(blk_get_attached_dev(blk));

    for (; obj; obj = obj->parent) {
        DeviceState *dev = (DeviceState *)object_dynamic_cast(obj,
                                                              TYPE_DEVICE);

        if (dev && dev->id) {
            return dedup_blk_by_device(dev->id, NULL) == blk ?
                   g_strdup(dev->id) : dedup_blk_path(blk);
        }
    }
    return dedup_blk_path(blk);
}

static GPtrArray *all_disks(unsigned pages)
{
    GPtrArray *disks = g_ptr_array_new_with_free_func(disk_leave);

    for (BlockBackend *b = blk_all_next(NULL); b; b = blk_all_next(b)) {
        unsigned slot = blk_get_attached_dev(b) && blk_is_inserted(b) ?
                        dedup_slot_of(b) : 0;

        if (slot) {
            SampleDisk *d = g_new0(SampleDisk, 1);

            d->ref = 1;
            d->blk = b;
            blk_ref(b);
            d->device = device_name(b);
            d->slot = slot;
            g_ptr_array_add(disks, d);
        }
    }
    for (unsigned i = 0; i < disks->len; i++) {
        SampleDisk *d = g_ptr_array_index(disks, i);

        d->quota = MAX(1, pages / disks->len);
        d->picks = g_new(SamplePick, d->quota);
    }
    return disks;
}

/* One more hint of @d: each gets the same chance to be among the picks */
static void disk_add(SampleDisk *d, DedupRam *dr, uint64_t page)
{
    uint64_t at = d->candidates++;

    if (at < d->quota) {
        d->npicks++;
    } else {
        at = g_random_double() * d->candidates;
    }
    if (at < d->quota) {
        d->picks[at] = (SamplePick) { .dr = dr, .page = page };
    }
}

/*
 * The hints of @dr from page *@at on, so many as a turn takes; false if
 * there are no more.  In an RCU critical section.
 */
static bool ram_turn(GPtrArray *disks, DedupRam *dr, uint64_t *at)
{
    SampleDisk *by_slot[DEDUP_MAX_SLOTS + 1] = { NULL };
    DEDUP_HOLD("bql", "sample-hints");
    uint64_t turn = MIN(dr->pages, dedup_at_once(TURN_PAGES));
    uint64_t end = MIN(dr->pages, *at + turn), page = *at;
    /*
     * To look at memory that was taken from the guest (virtio-mem) would
     * allocate it again.
     */
    bool readable = !qatomic_read(&dr->gone) &&
                    !memory_region_has_ram_discard_manager(dr->rb->mr);
    DedupHint h;

    for (unsigned i = 0; i < disks->len; i++) {
        SampleDisk *d = g_ptr_array_index(disks, i);

        by_slot[d->slot] = d;
    }
    for (; (page = dedup_hint_next(dr, page)) < end; page++) {
        SampleDisk *d = dedup_hint_get(dr, page, &h) ? by_slot[h.slot] : NULL;

        dedup_hold_steps(1);
        if (d) {
            d->hints++;
            if (readable) {
                disk_add(d, dr, page);
            }
        }
    }
    *at = MAX(page, end);
    return *at < dr->pages;
}

static DedupRam *nth_ram(unsigned n)
{
    DedupRam *dr = dedup_ram_first();

    while (dr && n--) {
        dr = dedup_ram_next(dr);
    }
    return dr;
}

/* Count and pick, with pauses: a large guest has millions of hints */
static void coroutine_fn all_hints(GPtrArray *disks)
{
    for (unsigned n = 0;; n++) {
        uint64_t at = 0;
        bool more = true;

        while (more) {
            WITH_RCU_READ_LOCK_GUARD() {
                DedupRam *dr = nth_ram(n);

                if (!dr) {
                    return;
                }
                more = ram_turn(disks, dr, &at);
            }
            if (more) {
                qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, TURN_NS);
            }
        }
    }
}

/* Is @pick still a hint of this disk?  In an RCU critical section. */
static bool sample_hint(SampleDisk *d, const SamplePick *pick, DedupHint *h)
{
    for (DedupRam *dr = dedup_ram_first(); dr; dr = dedup_ram_next(dr)) {
        if (dr == pick->dr) {
            return !qatomic_read(&dr->gone) &&
                   pick->page < dr->rb->used_length >> DEDUP_PAGE_BITS &&
                   dedup_hint_get(dr, pick->page, h) && h->slot == d->slot;
        }
    }
    return false;
}

static void coroutine_fn reader_co(void *opaque)
{
    SampleDisk *d = opaque;
    void *buf = blk_blockalign(d->blk, DEDUP_PAGE_SIZE);

    for (unsigned i = 0; i < d->npicks; i++) {
        SamplePick *pick = &d->picks[i];
        DedupHint h, now;
        bool is_hint;
        int ret;

        WITH_RCU_READ_LOCK_GUARD() {
            is_hint = sample_hint(d, pick, &h);
        }
        if (!is_hint) {
            continue;
        }
        if (qatomic_read(&d->quit)) {
            break;
        }
        ret = blk_co_pread(d->blk, h.sector * DEDUP_SECTOR, DEDUP_PAGE_SIZE,
                           buf, 0);
        if (ret == -ENOMEDIUM || qatomic_read(&d->quit)) {
            break;
        }
        WITH_RCU_READ_LOCK_GUARD() {
            if (sample_hint(d, pick, &now) && now.word == h.word) {
                char *page = (char *)pick->dr->host +
                             (pick->page << DEDUP_PAGE_BITS);
                bool same = ret >= 0 && (dedup_inject.no_compare ||
                                         !memcmp(page, buf, DEDUP_PAGE_SIZE));

                /* In this order: see result() */
                qatomic_set(&d->sampled, d->sampled + 1);
                smp_wmb();
                qatomic_set(&d->valid, d->valid + same);
            }
        }
    }
    qemu_vfree(buf);
    qatomic_store_release(&d->done, true);
    disk_unref(d);
}

static void disk_start(SampleDisk *d)
{
    /* Stopped early, a sample still has to be one of all picks */
    for (unsigned i = d->npicks; i > 1; i--) {
        unsigned k = g_random_int_range(0, i);
        SamplePick other = d->picks[k];

        d->picks[k] = d->picks[i - 1];
        d->picks[i - 1] = other;
    }
    if (!d->npicks) {
        d->done = true;
        return;
    }
    qatomic_inc(&d->ref);
    aio_co_enter(blk_get_aio_context(d->blk),
                 qemu_coroutine_create(reader_co, d));
}

/* Whether a reader is at work; those of disks that were unplugged end */
static bool readers_busy(GPtrArray *disks)
{
    bool busy = false;

    for (unsigned i = 0; i < disks->len; i++) {
        SampleDisk *d = g_ptr_array_index(disks, i);

        if (!blk_get_attached_dev(d->blk)) {
            qatomic_set(&d->quit, true);
        }
        busy |= !qatomic_load_acquire(&d->done) && !qatomic_read(&d->quit);
    }
    return busy;
}

static DedupDiskSampleList *result(GPtrArray *disks)
{
    DedupDiskSampleList *list = NULL, **tail = &list;

    for (unsigned i = 0; i < disks->len; i++) {
        SampleDisk *d = g_ptr_array_index(disks, i);

        if (d->hints && blk_get_attached_dev(d->blk)) {
            DedupDiskSample *one = g_new0(DedupDiskSample, 1);

            one->device = g_strdup(d->device);
            one->hints = d->hints;
            /* The reader may still count; never more valid than sampled */
            one->valid = qatomic_read(&d->valid);
            smp_rmb();
            one->sampled = qatomic_read(&d->sampled);
            QAPI_LIST_APPEND(tail, one);
        }
    }
    return list;
}

DedupDiskSampleList *coroutine_fn
qmp_x_dedup_sample_hints(bool has_pages, uint32_t pages, Error **errp)
{
    g_autoptr(GPtrArray) disks = NULL;
    int64_t deadline;

    if (!has_pages) {
        pages = PAGES_DEFAULT;
    }
    if (!pages || pages > PAGES_MAX) {
        error_setg(errp, "Parameter 'pages' expects a number from 1 to %d",
                   PAGES_MAX);
        return NULL;
    }
    disks = all_disks(pages);
    all_hints(disks);
    for (unsigned i = 0; i < disks->len && may_read(); i++) {
        disk_start(g_ptr_array_index(disks, i));
    }
    deadline = qemu_clock_get_ns(QEMU_CLOCK_REALTIME) + READ_NS;
    while (may_read() && readers_busy(disks) &&
           qemu_clock_get_ns(QEMU_CLOCK_REALTIME) < deadline) {
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, POLL_NS);
    }
    return result(disks);
}
