/*
 * Sample: how well the rest of the guest's memory compresses
 *
 * The rest is what a migration with records sends in full: pages that are
 * not zero, and whose hint, if they have one, no longer holds by its
 * fingerprint.  Groups of 64 neighbouring pages are picked at random, since
 * pages that lie together are what a batch holds; the rest of each group is
 * compressed as the sender would do it, and thrown away.  No page leaves
 * QEMU, only numbers do.
 *
 * It runs in the main loop, a group at a time: half a millisecond, and three
 * times as long a pause.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/coroutine.h"
#include "qemu/cutils.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "migration/misc.h"
#include "system/runstate.h"
#include "compress.h"
#include "compress-batch.h"

#define PAGES_DEFAULT   4096
#define PAGES_MAX       65536
#define PAUSE           3           /* times as long as a group took */
#define TIME_NS         (500 * SCALE_MS)

typedef struct Sampler {
    ZSTD_CCtx *ctx;
    uint8_t raw[DEDUP_BATCH_RAW];
    uint8_t out[DEDUP_BATCH_RAW];
    DedupCompressionSample *found;
} Sampler;

static bool may_look(void)
{
    return !runstate_check(RUN_STATE_INMIGRATE) && !migration_is_running() &&
           !migration_in_incoming_postcopy();
}

/*
 * To look at memory that was taken from the guest (virtio-mem) would
 * allocate it again.
 */
static uint64_t groups_of(DedupRam *dr)
{
    if (qatomic_read(&dr->gone) ||
        memory_region_has_ram_discard_manager(dr->rb->mr)) {
        return 0;
    }
    return (dr->rb->used_length >> DEDUP_PAGE_BITS) / DEDUP_BATCH_PAGES;
}

/* In an RCU critical section */
static uint64_t all_groups(void)
{
    uint64_t n = 0;

    for (DedupRam *dr = dedup_ram_first(); dr; dr = dedup_ram_next(dr)) {
        n += groups_of(dr);
    }
    return n;
}

static void sample_group(Sampler *s, DedupRam *dr, uint64_t first)
{
    unsigned n = 0;
    size_t len;

    for (uint64_t page = first; page < first + DEDUP_BATCH_PAGES; page++) {
        uint8_t *host = dr->rb->host + (page << DEDUP_PAGE_BITS);
        DedupHint h;

        s->found->pages++;
        if (buffer_is_zero(host, DEDUP_PAGE_SIZE)) {
            s->found->zero_pages++;
        } else if (dedup_hint_get(dr, page, &h) &&
                   (!h.fingerprint ||
                    h.fingerprint == dedup_fingerprint(host))) {
            s->found->hinted_pages++;
        } else {
            memcpy(s->raw + n++ * DEDUP_PAGE_SIZE, host, DEDUP_PAGE_SIZE);
        }
    }
    if (!n) {
        return;
    }
    len = dedup_batch_deflate(s->ctx, 1, false, s->raw, n, s->out);
    s->found->sampled_pages += n;
    s->found->compressed_bytes += len ?: n * DEDUP_PAGE_SIZE;
}

/* The group with that number, of all; false: memory was unplugged */
static bool sample_one(Sampler *s, uint64_t number)
{
    RCU_READ_LOCK_GUARD();
    for (DedupRam *dr = dedup_ram_first(); dr; dr = dedup_ram_next(dr)) {
        uint64_t n = groups_of(dr);

        if (number < n) {
            sample_group(s, dr, number * DEDUP_BATCH_PAGES);
            return true;
        }
        number -= n;
    }
    return false;
}

DedupCompressionSample *coroutine_fn
qmp_x_dedup_sample_compression(bool has_pages, uint32_t pages, Error **errp)
{
    g_autofree Sampler *s = NULL;
    int64_t deadline;
    uint64_t total;
    unsigned n;

    if (!has_pages) {
        pages = PAGES_DEFAULT;
    }
    if (!pages || pages > PAGES_MAX) {
        error_setg(errp, "Parameter 'pages' expects a number from 1 to %d",
                   PAGES_MAX);
        return NULL;
    }
    s = g_try_new0(Sampler, 1);
    if (!s || !(s->ctx = ZSTD_createCCtx())) {
        error_setg(errp, "Not enough memory to sample the guest's");
        return NULL;
    }
    s->found = g_new0(DedupCompressionSample, 1);
    dedup_ram_make_all();
    WITH_RCU_READ_LOCK_GUARD() {
        total = all_groups();
    }
    n = MIN(DIV_ROUND_UP(pages, DEDUP_BATCH_PAGES), total);
    deadline = get_clock() + TIME_NS;
    for (unsigned i = 0; i < n && may_look() && get_clock() < deadline; i++) {
        int64_t start = get_clock();
        /* One of each of n equal parts, in an order that is no order */
        uint64_t part = (uint64_t)i * 0x9e3779b1u % n;
        uint64_t first = total * part / n, end = total * (part + 1) / n;

        if (!sample_one(s, first + g_random_double() * (end - first))) {
            break;
        }
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, (get_clock() - start) * PAUSE);
    }
    ZSTD_freeCCtx(s->ctx);
    return s->found;
}
