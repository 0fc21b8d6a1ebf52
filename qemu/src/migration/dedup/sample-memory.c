/*
 * Samples of the guest's pages
 *
 * One page of each of as many equal parts of the memory, at a place within it
 * that a key decides.
 *
 *   x-dedup-sample-memory    how many of them are not zero; a new key each
 *                            time
 *   x-dedup-sample-digests   a digest of each, under the key of the caller:
 *                            in two samples with the same key, those that
 *                            differ are of pages that were written to
 *
 * Nothing is kept from one command to the next, so any number of callers can
 * compare samples over any time, and none waits for another.  No page leaves
 * QEMU.  The pages are read in turns, so that the main loop is never held up:
 * one that was swapped out takes its time.
 *
 * Runs in the coroutine of the command, in the main loop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/coroutine.h"
#include "qemu/cutils.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "exec/target_page.h"
#include "migration/misc.h"
#include "system/runstate.h"
#include "dedup-int.h"
#include "digest.h"
#include "hold.h"

#define PAGES_DEFAULT   1024
#define DIGESTS_DEFAULT 8192
#define PAGES_MAX       65536
#define TURN_NS         (300 * SCALE_US)
#define PAUSE_NS        (100 * SCALE_US)    /* a millisecond, in effect */
/* Of a digest, what is returned: one change in 2^32 goes unseen */
#define DIGEST_BYTES    4

typedef struct Sampler Sampler;
struct Sampler {
    uint8_t key[16];
    void (*look)(Sampler *s, const void *page, uint32_t part);
    uint64_t sampled, used;             /* of x-dedup-sample-memory */
    uint8_t *digests;
};

/*
 * Memory that was taken from the guest (virtio-mem) would be allocated again
 * by a look at it; ROMs and the like are no guest memory.
 */
static bool counts(DedupRam *dr)
{
    return !qatomic_read(&dr->gone) && dr->rb->mr &&
           memory_region_is_ram(dr->rb->mr) &&
           !memory_region_is_rom(dr->rb->mr) &&
           !memory_region_has_ram_discard_manager(dr->rb->mr);
}

/* To look at a page */
#define PAGE_STEPS      64

/* Pages in all; *@dr and *@page: where the @n-th of them is */
static uint64_t locate(uint64_t n, DedupRam **dr, uint64_t *page)
{
    uint64_t all = 0;

    *dr = NULL;
    for (DedupRam *d = dedup_ram_first(); d; d = dedup_ram_next(d)) {
        uint64_t pages;

        if (!counts(d)) {
            continue;
        }
        pages = d->rb->used_length >> DEDUP_PAGE_BITS;
        if (!*dr && n < all + pages) {
            *dr = d;
            *page = n - all;
        }
        all += pages;
    }
    return all;
}

static bool may_sample(uint32_t pages, Error **errp)
{
    if (!pages || pages > PAGES_MAX) {
        error_setg(errp, "Parameter 'pages' expects a number from 1 to %d",
                   PAGES_MAX);
        return false;
    }
    /* In post-copy a page that is read is waited for */
    if (qemu_target_page_size() != DEDUP_PAGE_SIZE ||
        runstate_check(RUN_STATE_INMIGRATE) ||
        migration_in_incoming_postcopy()) {
        error_setg(errp, "The guest's memory cannot be sampled: it has not "
                   "arrived yet, or its pages are not of 4 KiB");
        return false;
    }
    return true;
}

/* A number from 0 to @below - 1, always the same for a part and a key */
static uint64_t place(Sampler *s, uint64_t part, uint64_t below)
{
    uint8_t digest[16];

    dedup_siphash(s->key, &part, sizeof(part), digest);
    return ldq_he_p(digest) % below;
}

/* Look at a page of each of so many parts; return the pages in all */
static uint64_t coroutine_fn sample(Sampler *s, uint32_t parts)
{
    int64_t turn = get_clock();
    uint64_t all, page = 0;
    DedupRam *dr;

    dedup_ram_make_all();
    WITH_RCU_READ_LOCK_GUARD() {
        all = locate(0, &dr, &page);
    }
    parts = MIN(parts, all);
    for (uint32_t i = 0; i < parts; i++) {
        uint64_t first = all * i / parts;
        uint64_t end = all * (i + 1) / parts;

        if (get_clock() - turn > TURN_NS) {
            qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, PAUSE_NS);
            turn = get_clock();
        }
        WITH_RCU_READ_LOCK_GUARD() {
            DEDUP_HOLD("bql", "sample-memory");

            dedup_hold_steps(PAGE_STEPS);
            locate(first + place(s, i, end - first), &dr, &page);
            if (dr) {                   /* else unplugged meanwhile */
                s->look(s, dr->rb->host + (page << DEDUP_PAGE_BITS), i);
            }
        }
    }
    return all;
}

static void look_for_zeros(Sampler *s, const void *page, uint32_t part)
{
    s->sampled++;
    s->used += !buffer_is_zero(page, DEDUP_PAGE_SIZE);
}

static void take_digest(Sampler *s, const void *page, uint32_t part)
{
    uint8_t digest[16];

    dedup_digest(s->key, page, digest);
    memcpy(s->digests + part * DIGEST_BYTES, digest, DIGEST_BYTES);
}

DedupMemorySample *coroutine_fn
qmp_x_dedup_sample_memory(bool has_pages, uint32_t pages, Error **errp)
{
    Sampler s = { .look = look_for_zeros };
    DedupMemorySample *found;

    if (!has_pages) {
        pages = PAGES_DEFAULT;
    }
    if (!may_sample(pages, errp)) {
        return NULL;
    }
    stl_he_p(s.key, g_random_int());
    found = g_new0(DedupMemorySample, 1);
    found->pages = sample(&s, pages);
    found->sampled = s.sampled;
    found->used = s.used;
    return found;
}

DedupDigestSample *coroutine_fn
qmp_x_dedup_sample_digests(uint64_t seed, bool has_pages, uint32_t pages,
                           Error **errp)
{
    Sampler s = { .look = take_digest };
    DedupDigestSample *found;

    if (!has_pages) {
        pages = DIGESTS_DEFAULT;
    }
    if (!may_sample(pages, errp)) {
        return NULL;
    }
    stq_he_p(s.key, seed);
    /* Memory that was unplugged meanwhile has zeros */
    s.digests = g_new0(uint8_t, pages * DIGEST_BYTES);
    found = g_new0(DedupDigestSample, 1);
    found->pages = sample(&s, pages);
    found->digests = g_base64_encode(
        s.digests, MIN(pages, found->pages) * DIGEST_BYTES);
    g_free(s.digests);
    return found;
}
