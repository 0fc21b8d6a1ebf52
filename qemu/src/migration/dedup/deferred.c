/*
 * Pages put off because they are about to be written to disk, see deferred.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "deferred.h"
#include "hold.h"

#define WAIT_US         1500000
#define REVIEW_US       10000
#define UNPROVEN_MAX    256     /* pages */
#define PROVEN_MAX      16384

typedef struct DeferredPage {
    DedupRam *dr;
    uint64_t page;
    uint64_t word;              /* the hint then */
    int64_t since;
} DeferredPage;

void dedup_deferred_init(DedupDeferred *d)
{
    memset(d, 0, sizeof(*d));
    d->queue = g_array_new(false, false, sizeof(DeferredPage));
}

void dedup_deferred_free(DedupDeferred *d)
{
    g_clear_pointer(&d->queue, g_array_unref);
    d->count = 0;
}

static uint64_t capacity(DedupDeferred *d)
{
    if (d->paid + d->expired < UNPROVEN_MAX) {
        return UNPROVEN_MAX;
    }
    return d->paid > d->expired ? PROVEN_MAX : 0;
}

bool dedup_deferred_add(DedupDeferred *d, DedupRam *dr, uint64_t page,
                        uint64_t word, int64_t now)
{
    DeferredPage p = { dr, page, word, now };

    if (test_bit(page, dr->waiting)) {
        return true;            /* written to again meanwhile */
    }
    /* Entries of pages that did not wait to the end are still queued */
    if (MAX(d->count, d->queue->len) >= capacity(d)) {
        return false;
    }
    set_bit(page, dr->waiting);
    d->count++;
    g_array_append_val(d->queue, p);
    return true;
}

void dedup_deferred_done(DedupDeferred *d, DedupRam *dr, uint64_t page,
                         bool paid)
{
    if (d->count && test_and_clear_bit(page, dr->waiting)) {
        d->count--;
        if (paid) {
            d->paid++;
        } else {
            d->expired++;
        }
    }
}

void dedup_deferred_review(DedupDeferred *d, int64_t now)
{
    unsigned kept = 0;

    if (!d->queue->len || now - d->reviewed < REVIEW_US) {
        return;
    }
    d->reviewed = now;
    dedup_hold_steps(d->queue->len);
    for (unsigned i = 0; i < d->queue->len; i++) {
        DeferredPage *p = &g_array_index(d->queue, DeferredPage, i);
        DedupHint h;

        if (!test_bit(p->page, p->dr->waiting)) {
            continue;
        }
        dedup_hint_get(p->dr, p->page, &h);
        if (h.word == p->word && now - p->since < WAIT_US) {
            g_array_index(d->queue, DeferredPage, kept++) = *p;
            continue;
        }
        dedup_set_dirty(p->dr, p->page);
        if (h.word == p->word) {
            dedup_hint_drop(p->dr, p->page, h.word);
            set_bit(p->page, p->dr->direct);
        } else {
            /* Until it is sent: the new hint may turn out stale as well */
            p->word = h.word;
            g_array_index(d->queue, DeferredPage, kept++) = *p;
        }
    }
    g_array_set_size(d->queue, kept);
}

static uint64_t release(DedupDeferred *d, uint64_t n, bool all)
{
    uint64_t released = 0;
    unsigned i, kept = 0;

    for (i = 0; i < d->queue->len && released < n; i++) {
        DeferredPage *p = &g_array_index(d->queue, DeferredPage, i);
        DedupHint h;

        if (!test_bit(p->page, p->dr->waiting)) {
            continue;
        }
        dedup_hint_get(p->dr, p->page, &h);
        if (h.word != p->word && !all) {
            g_array_index(d->queue, DeferredPage, kept++) = *p;
            continue;
        }
        clear_bit(p->page, p->dr->waiting);
        d->count--;
        released++;
        set_bit(p->page, p->dr->direct);
        dedup_set_dirty(p->dr, p->page);
    }
    g_array_remove_range(d->queue, kept, i - kept);
    dedup_hold_steps(i);
    return released;
}

uint64_t dedup_deferred_give_up(DedupDeferred *d, uint64_t n)
{
    return release(d, n, false);
}

uint64_t dedup_deferred_release(DedupDeferred *d)
{
    return release(d, UINT64_MAX, true);
}
