/*
 * The destination's reads
 *
 * Many at once, in the order of fetch-queue.c, each into a bounce buffer: the
 * digest is taken there, and only then dedup_incoming_place() puts the bytes
 * into memory.
 *
 * Reads and digests run as coroutines in an IOThread of our own, so that
 * neither the main loop nor the migration coroutine waits for storage.
 * Whoever still reads holds a reference; the last one has a bottom half of
 * the main loop free the fetcher.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/block_int.h"
#include "qapi/error.h"
#include "qemu/coroutine.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "system/block-backend.h"
#include "aside.h"
#include "fetch-int.h"
#include "hold.h"
#include "trace.h"

#define DEPTH           16
#define HURRY_DEPTH     32              /* beside these */
#define INFLIGHT_MIN    (256 * 1024)
#define RATE_NS         (100 * SCALE_MS)
#define BURST_NS        (10 * SCALE_MS)

/* Up to 160 MiB of records */
static void fetch_free(void *opaque)
{
    DedupFetch *f = opaque;

    dedup_fetch_queue_free(f);
    qemu_mutex_destroy(&f->lock);
    g_free(f);
}

static void fetch_free_bh(void *opaque)
{
    DEDUP_HOLD("bql", "fetch-free");
    DedupFetch *f = opaque;

    if (f->timer) {
        timer_free(f->timer);
    }
    g_ptr_array_unref(f->disks);        /* before the AioContext they are in */
    if (f->iothread) {
        iothread_destroy(f->iothread);
    }
    dedup_aside(fetch_free, f);
}

static void fetch_ref(DedupFetch *f)
{
    qatomic_inc(&f->ref);
}

static void fetch_unref(DedupFetch *f)
{
    if (qatomic_fetch_dec(&f->ref) == 1) {
        aio_bh_schedule_oneshot(qemu_get_aio_context(), fetch_free_bh, f);
    }
}

DedupFetch *dedup_fetch_new(const uint8_t *key)
{
    DedupFetch *f = g_new0(DedupFetch, 1);

    memcpy(f->key, key, DEDUP_KEY_LEN);
    qemu_mutex_init(&f->lock);
    f->disks = g_ptr_array_new_with_free_func(dedup_fetch_free_disk);
    f->inbox = g_array_new(false, false, sizeof(DedupFetchRecord));
    f->gen = g_array_new(false, false, sizeof(DedupFetchRecord));
    f->ref = 1;
    return f;
}

static void take(DedupFetchRun *run, DedupFetchRecord *rec,
                 const uint8_t *data)
{
    DedupFetch *f = run->f;
    DedupFetchDisk *d = g_ptr_array_index(f->disks, rec->disk);
    uint8_t digest[DEDUP_DIGEST_LEN];

    dedup_digest(f->key, data, digest);
    if (memcmp(digest, rec->digest, DEDUP_DIGEST_LEN) &&
        !dedup_inject.no_verify) {
        dedup_fetch_refuse(f, rec, DEDUP_ANSWER_DIGEST);
        return;
    }
    dedup_incoming_place(f, rec, d->slot, data);
    dedup_fetch_settle(f, 1);
}

static void account(DedupFetch *f, int64_t start, uint64_t bytes)
{
    int64_t now = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);

    stat64_add(&f->reads, 1);
    stat64_add(&f->bytes, bytes);
    stat64_add(&f->read_ns, now - start);
    stat64_max(&f->max_read_ns, now - start);

    f->rate_bytes += bytes;
    if (now - f->rate_mark >= RATE_NS) {
        qatomic_set(&f->rate, f->rate_bytes * NANOSECONDS_PER_SECOND /
                              (now - f->rate_mark));
        f->rate_bytes = 0;
        f->rate_mark = now;
    }
}

/* Blocks that other records need as well are read again for those */
static bool coroutine_fn read_one(DedupFetchRun *run, DedupFetchRecord *rec,
                                  uint8_t *buf)
{
    int64_t began = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    uint64_t start = ROUND_DOWN(rec->offset, DEDUP_READ_ALIGN);
    uint64_t end = ROUND_UP(rec->offset + DEDUP_PAGE_SIZE, DEDUP_READ_ALIGN);

    if (dedup_target_read(run->target, start, end - start,
                          buf + (start - run->start)) < 0) {
        return false;
    }
    account(run->f, began, end - start);
    return true;
}

static void coroutine_fn fetch_co(void *opaque)
{
    DedupFetchRun *run = opaque;
    DedupFetch *f = run->f;
    uint64_t len = run->end - run->start;
    uint8_t *buf = qemu_try_memalign(4096, len);
    int64_t start = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    int ret = -ENOMEM;

    if (dedup_inject.fetch_delay_us) {
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME,
                         dedup_inject.fetch_delay_us * 1000LL);
    }
    if (buf && !qatomic_read(&f->stopped)) {
        ret = dedup_target_read(run->target, run->start, len, buf);
        account(f, start, ret < 0 ? 0 : len);
    }
    for (unsigned i = 0; i < run->n; i++) {
        DedupFetchRecord *rec = &run->recs[i];
        uint8_t *data = buf + (rec->offset - run->start);

        if (qatomic_read(&f->stopped)) {
            dedup_fetch_settle(f, run->n - i);
            break;
        }
        /* One bad sector must not condemn its neighbours */
        if (ret < 0 && buf && run->n > 1) {
            if (!read_one(run, rec, buf)) {
                dedup_fetch_refuse(f, rec, DEDUP_ANSWER_IO);
                continue;
            }
        } else if (ret < 0) {
            dedup_fetch_refuse(f, rec, DEDUP_ANSWER_IO);
            continue;
        }
        take(run, rec, data);
    }
    trace_dedup_fetch_read(run->start, len, run->n, ret);
    qemu_vfree(buf);
    if (run->hurried) {
        f->hurrying--;
    } else {
        f->inflight--;
        f->inflight_bytes -= len;
    }
    g_free(run);
    dedup_fetch_kick(f);
    fetch_unref(f);
}

/*
 * Bytes to read at once: what storage delivered lately in a tenth of a
 * second.  Where a filter makes us read through the guest's own node, a
 * device with an IOThread drains it when the guest starts, and so waits for
 * reads under way.
 */
static uint64_t inflight_max(DedupFetch *f)
{
    uint64_t rate = qatomic_read(&f->rate);

    return rate ? MAX(rate / 10, INFLIGHT_MIN) : DEPTH * DEDUP_READ_MAX;
}

/*
 * True: the limits allow a read now.  Otherwise the pump is woken up when
 * they do.  A pause earns nothing for later.
 */
static bool may_read(DedupFetch *f)
{
    int64_t now = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);

    if (f->next_read_ns > now) {
        timer_mod(f->timer, f->next_read_ns);
        return false;
    }
    f->next_read_ns = MAX(f->next_read_ns, now - BURST_NS);
    return true;
}

static void charge(DedupFetch *f, uint64_t bytes)
{
    int64_t ns = 0;

    if (f->limit_bytes) {
        ns = muldiv64(bytes, NANOSECONDS_PER_SECOND, f->limit_bytes);
    }
    if (f->limit_reads) {
        ns = MAX(ns, NANOSECONDS_PER_SECOND / f->limit_reads);
    }
    f->next_read_ns += ns;
}

static void limit_passed(void *opaque)
{
    dedup_fetch_kick(opaque);
}

static void start(DedupFetch *f, DedupFetchRun *run)
{
    charge(f, run->end - run->start);
    fetch_ref(f);
    qemu_coroutine_enter(qemu_coroutine_create(fetch_co, run));
}

/* IOThread */
static void pump_bh(void *opaque)
{
    DedupFetch *f = opaque;
    DedupFetchRun *run;
    uint64_t max;

    qatomic_set(&f->kicked, false);
    smp_mb();                   /* pairs with the xchg: no wake-up is lost */
    /* The source sends these as well; should storage hang, it does alone */
    while (!qatomic_read(&f->stopped) && f->hurrying < HURRY_DEPTH &&
           (run = dedup_fetch_next_hurried(f))) {
        f->hurrying++;
        stat64_add(&f->hurries, 1);
        start(f, run);
    }
    while (!qatomic_read(&f->stopped) && f->inflight < DEPTH &&
           (max = inflight_max(f)) > f->inflight_bytes && may_read(f) &&
           (run = dedup_fetch_next_run(f, MIN(DEDUP_READ_MAX, max)))) {
        f->inflight++;
        f->inflight_bytes += run->end - run->start;
        start(f, run);
    }
    fetch_unref(f);
}

void dedup_fetch_kick(DedupFetch *f)
{
    if (!qatomic_xchg(&f->kicked, true)) {
        fetch_ref(f);
        aio_bh_schedule_oneshot(f->ctx, pump_bh, f);
    }
}

static void open_bh(void *opaque)
{
    static unsigned serial;
    DedupFetch *f = opaque;
    g_autofree char *name = NULL;
    Error *err = NULL;
    DEDUP_HOLD("bql", "fetch-open");

    if (qatomic_read(&f->stopped)) {
        fetch_unref(f);
        return;
    }
    name = g_strdup_printf("dedup-fetch-%u", serial++);
    f->iothread = iothread_create(name, &err);
    if (!f->iothread) {
        /* Without it nothing is fetched: the source sends all in the end */
        warn_report_err(err);
        fetch_unref(f);
        return;
    }
    f->ctx = iothread_get_aio_context(f->iothread);
    f->timer = aio_timer_new(f->ctx, QEMU_CLOCK_REALTIME, SCALE_NS,
                             limit_passed, f);
    dedup_fetch_open_nodes(f);
    f->rate_mark = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    WITH_QEMU_LOCK_GUARD(&f->lock) {
        f->opened = true;
    }
    dedup_fetch_kick(f);
    fetch_unref(f);
}

void dedup_fetch_start(DedupFetch *f)
{
    fetch_ref(f);
    aio_bh_schedule_oneshot(qemu_get_aio_context(), open_bh, f);
    if (qemu_in_coroutine()) {
        aio_co_schedule(qemu_get_current_aio_context(),
                        qemu_coroutine_self());
        qemu_coroutine_yield();
    }
}

void dedup_fetch_limit(DedupFetch *f, uint64_t bytes, uint32_t reads)
{
    f->limit_bytes = bytes;
    f->limit_reads = reads;
}

void dedup_fetch_halt(DedupFetch *f)
{
    qatomic_set(&f->stopped, true);
}

void dedup_fetch_stop(DedupFetch *f)
{
    dedup_fetch_halt(f);
    dedup_fetch_cut(f);
    fetch_unref(f);
}

uint64_t dedup_fetch_backlog(DedupFetch *f)
{
    return stat64_get(&f->backlog);
}

uint64_t dedup_fetch_rate(DedupFetch *f)
{
    return qatomic_read(&f->rate);
}

void dedup_fetch_query(DedupFetch *f, DedupIncomingInfo *info)
{
    info->reads = stat64_get(&f->reads);
    info->bytes_read = stat64_get(&f->bytes);
    info->read_ns = stat64_get(&f->read_ns);
    info->max_read_ns = stat64_get(&f->max_read_ns);
    info->backlog = stat64_get(&f->backlog);
    info->hurried_reads = stat64_get(&f->hurries);
}
