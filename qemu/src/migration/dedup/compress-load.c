/*
 * Compression: the destination
 *
 * The migration coroutine reads each batch into a slot, checks its header
 * (compress-batch.c) against what SETUP named, and gives it to a thread,
 * which decompresses it into the slot's bounce buffer and places its pages
 * as content: whatever fetch is under way for a page no longer touches it,
 * and the page counts as received.  There are two slots for each thread and
 * nothing else is allocated; if all are taken the coroutine waits, as long as
 * decompressing one batch takes.
 *
 * Batches of a section hold different pages, so they may be placed in any
 * order, beside all else of the section.  dedup_incoming_sync() is what ends
 * a section.  What a batch does wrong is found out there, or at the next
 * batch: the load ends.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/lockable.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "compress.h"
#include "compress-batch.h"
#include "incoming-int.h"

#define THREADS_MAX     4

typedef struct Slot {
    RAMBlock *rb;
    DedupBatch b;
    QSIMPLEQ_ENTRY(Slot) next;
    uint8_t payload[DEDUP_BATCH_PAYLOAD];
    uint8_t raw[DEDUP_BATCH_RAW];
} Slot;

typedef QSIMPLEQ_HEAD(, Slot) Slots;

static struct {
    bool running;
    QemuMutex lock;
    QemuCond work, progress;
    Slots free, queued;
    unsigned busy;                      /* slots not free */
    bool quit, failed;
    QemuThread threads[THREADS_MAX];
    ZSTD_DCtx *contexts[THREADS_MAX];
    unsigned nthreads;

    uint64_t pages, bytes;              /* by the coroutine */
    Stat64 ns;
} il;

/* Any thread.  False, with a message: it is no batch. */
static bool place_batch(ZSTD_DCtx *ctx, Slot *slot)
{
    const char *wrong = dedup_batch_inflate(ctx, &slot->b, slot->raw);

    if (wrong) {
        error_report("dedup: batch of %u pages of '%s' cannot be "
                     "decompressed: %s", slot->b.n, slot->rb->idstr, wrong);
        return false;
    }
    for (unsigned i = 0; i < slot->b.n; i++) {
        ram_addr_t offset = slot->b.pages[i] << DEDUP_PAGE_BITS;

        dedup_incoming_supersede_page(slot->rb, offset);
        if (!dedup_inject.no_recv_bit) {
            ramblock_recv_bitmap_set_offset(slot->rb, offset);
        }
        memcpy(slot->rb->host + offset, slot->raw + i * DEDUP_BATCH_PAGE,
               DEDUP_BATCH_PAGE);
    }
    return true;
}

static void *inflate_thread(void *opaque)
{
    ZSTD_DCtx *ctx = opaque;

    qemu_mutex_lock(&il.lock);
    while (true) {
        Slot *slot;
        int64_t start;
        bool ok;

        while (QSIMPLEQ_EMPTY(&il.queued) && !il.quit) {
            qemu_cond_wait(&il.work, &il.lock);
        }
        if (il.quit) {
            break;
        }
        slot = QSIMPLEQ_FIRST(&il.queued);
        QSIMPLEQ_REMOVE_HEAD(&il.queued, next);
        qemu_mutex_unlock(&il.lock);

        start = get_clock();
        if (dedup_inject.inflate_delay_us) {
            g_usleep(dedup_inject.inflate_delay_us * slot->b.n);
        }
        ok = place_batch(ctx, slot);
        stat64_add(&il.ns, get_clock() - start);

        qemu_mutex_lock(&il.lock);
        il.failed |= !ok;
        il.busy--;
        QSIMPLEQ_INSERT_HEAD(&il.free, slot, next);
        qemu_cond_signal(&il.progress);
    }
    qemu_mutex_unlock(&il.lock);
    return NULL;
}

bool dedup_inflate_start(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = MAX(1, MIN(cpus / 2, THREADS_MAX));

    qemu_mutex_init(&il.lock);
    qemu_cond_init(&il.work);
    qemu_cond_init(&il.progress);
    QSIMPLEQ_INIT(&il.free);
    QSIMPLEQ_INIT(&il.queued);
    il.busy = il.nthreads = 0;
    il.quit = il.failed = false;
    il.pages = il.bytes = 0;
    stat64_init(&il.ns, 0);
    il.running = true;
    for (unsigned i = 0; i < n; i++) {
        il.contexts[i] = ZSTD_createDCtx();
        if (!il.contexts[i]) {
            error_report("dedup: no memory for decompression");
            return false;
        }
        for (int k = 0; k < 2; k++) {
            Slot *slot = g_new0(Slot, 1);

            QSIMPLEQ_INSERT_TAIL(&il.free, slot, next);
        }
        qemu_thread_create(&il.threads[i], "mig/dst/zstd", inflate_thread,
                           il.contexts[i], QEMU_THREAD_JOINABLE);
        il.nthreads++;
    }
    return true;
}

static bool acceptable(Slot *slot)
{
    uint64_t limit;

    if (slot->b.block >= dedup_in.blocks->len) {
        return false;
    }
    slot->rb = g_ptr_array_index(dedup_in.blocks, slot->b.block);
    limit = g_array_index(dedup_in.limits, uint64_t, slot->b.block);
    /* They ascend */
    return slot->b.pages[slot->b.n - 1] < limit;
}

static void put_back(Slot *slot)
{
    QEMU_LOCK_GUARD(&il.lock);
    QSIMPLEQ_INSERT_HEAD(&il.free, slot, next);
}

int dedup_inflate_load(QEMUFile *f, uint32_t len)
{
    Slot *slot;
    bool failed;

    if (!il.running) {
        error_report("dedup: a batch that was not announced");
        return -EINVAL;
    }
    WITH_QEMU_LOCK_GUARD(&il.lock) {
        while (QSIMPLEQ_EMPTY(&il.free)) {
            qemu_cond_wait(&il.progress, &il.lock);
        }
        slot = QSIMPLEQ_FIRST(&il.free);
        QSIMPLEQ_REMOVE_HEAD(&il.free, next);
        failed = il.failed;
    }
    if (failed) {
        put_back(slot);
        return -EINVAL;
    }
    if (qemu_get_buffer(f, slot->payload, len) != len) {
        put_back(slot);
        return qemu_file_get_error(f) ?: -EIO;
    }
    if (!dedup_batch_decode(slot->payload, len, &slot->b) ||
        !acceptable(slot)) {
        put_back(slot);
        error_report("dedup: batch of %u bytes is malformed", len);
        return -EINVAL;
    }
    il.pages += slot->b.n;
    il.bytes += 14 + len;
    WITH_QEMU_LOCK_GUARD(&il.lock) {
        il.busy++;
        QSIMPLEQ_INSERT_TAIL(&il.queued, slot, next);
        qemu_cond_signal(&il.work);
    }
    return 0;
}

int dedup_incoming_sync(void)
{
    if (!il.running || dedup_inject.no_inflate_wait) {
        return 0;
    }
    QEMU_LOCK_GUARD(&il.lock);
    while (il.busy) {
        qemu_cond_wait(&il.progress, &il.lock);
    }
    return il.failed ? -EINVAL : 0;
}

static void free_slots(Slots *slots)
{
    Slot *slot;

    while ((slot = QSIMPLEQ_FIRST(slots))) {
        QSIMPLEQ_REMOVE_HEAD(slots, next);
        g_free(slot);
    }
}

void dedup_inflate_stop(void)
{
    if (!il.running) {
        return;
    }
    WITH_QEMU_LOCK_GUARD(&il.lock) {
        il.quit = true;
        qemu_cond_broadcast(&il.work);
    }
    for (unsigned i = 0; i < il.nthreads; i++) {
        qemu_thread_join(&il.threads[i]);
    }
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        ZSTD_freeDCtx(il.contexts[i]);
        il.contexts[i] = NULL;
    }
    free_slots(&il.free);
    free_slots(&il.queued);
    qemu_cond_destroy(&il.work);
    qemu_cond_destroy(&il.progress);
    qemu_mutex_destroy(&il.lock);
    il.running = false;
}

void dedup_inflate_query(DedupIncomingInfo *info)
{
    info->compressed_pages = il.pages;
    info->compressed_bytes = il.bytes;
    info->compression_ns = stat64_get(&il.ns);
    info->compression_threads = il.nthreads;
}
