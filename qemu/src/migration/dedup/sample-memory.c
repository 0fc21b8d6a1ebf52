/*
 * Sample: how much of the guest's memory is not zero
 *
 * One page of each of as many equal parts of the memory, at random within
 * it.  Nothing but two numbers leaves QEMU.  The pages are read in turns, so
 * that the main loop is never held up: one that was swapped out takes its
 * time.
 *
 * Runs in the coroutine of the command, in the main loop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/coroutine.h"
#include "qemu/cutils.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "exec/target_page.h"
#include "system/runstate.h"
#include "dedup-int.h"
#include "hold.h"

#define PAGES_DEFAULT   1024
#define PAGES_MAX       65536
#define TURN_PAGES      32
#define TURN_NS         (100 * SCALE_US)

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

DedupMemorySample *coroutine_fn
qmp_x_dedup_sample_memory(bool has_pages, uint32_t pages, Error **errp)
{
    DedupMemorySample *s;
    uint64_t page = 0;
    DedupRam *dr;

    if (!has_pages) {
        pages = PAGES_DEFAULT;
    }
    if (!pages || pages > PAGES_MAX) {
        error_setg(errp, "Parameter 'pages' expects a number from 1 to %d",
                   PAGES_MAX);
        return NULL;
    }
    if (qemu_target_page_size() != DEDUP_PAGE_SIZE ||
        runstate_check(RUN_STATE_INMIGRATE)) {
        error_setg(errp, "The guest's memory cannot be sampled: it has not "
                   "arrived yet, or its pages are not of 4 KiB");
        return NULL;
    }
    dedup_ram_make_all();
    s = g_new0(DedupMemorySample, 1);
    WITH_RCU_READ_LOCK_GUARD() {
        s->pages = locate(0, &dr, &page);
    }
    pages = MIN(pages, s->pages);
    for (uint32_t i = 0; i < pages; i++) {
        uint64_t first = s->pages * i / pages;
        uint64_t end = s->pages * (i + 1) / pages;

        if (i % TURN_PAGES == TURN_PAGES - 1) {
            qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, TURN_NS);
        }
        WITH_RCU_READ_LOCK_GUARD() {
            DEDUP_HOLD("bql", "sample-memory");

            dedup_hold_steps(PAGE_STEPS);
            locate(first + g_random_double() * (end - first), &dr, &page);
            if (dr) {                   /* else unplugged meanwhile */
                s->sampled++;
                s->used += !buffer_is_zero(
                    dr->rb->host + (page << DEDUP_PAGE_BITS),
                    DEDUP_PAGE_SIZE);
            }
        }
    }
    return s;
}
