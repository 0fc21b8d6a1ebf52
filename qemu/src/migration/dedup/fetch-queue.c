/*
 * Records that wait to be fetched, and what is read next
 *
 * Records wait in an inbox.  When the generation before is used up, all that
 * came in meanwhile is sorted by place and becomes the next one (papers.md
 * P1.4, P2.3): an elevator that neither starves a record nor sorts twice.
 * Neighbours are read together, with the gaps between them if those are
 * short.
 *
 * The inbox is filled from the migration coroutine (or thread), under the
 * lock; the generation belongs to the IOThread.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "fetch-int.h"

#define GAP_MAX     (64 * 1024)

void dedup_fetch_add(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
    bool opened;

    if (!n) {
        return;
    }
    stat64_add(&f->backlog, n);
    WITH_QEMU_LOCK_GUARD(&f->lock) {
        g_array_append_vals(f->inbox, recs, n);
        opened = f->opened;
    }
    if (opened) {
        dedup_fetch_kick(f);
    }
}

void dedup_fetch_trim(DedupFetch *f)
{
    unsigned kept = 0;

    QEMU_LOCK_GUARD(&f->lock);
    for (unsigned i = 0; i < f->inbox->len; i++) {
        DedupFetchRecord *rec = &g_array_index(f->inbox, DedupFetchRecord, i);

        if (dedup_incoming_wanted(f, rec)) {
            g_array_index(f->inbox, DedupFetchRecord, kept++) = *rec;
        }
    }
    dedup_fetch_settle(f, f->inbox->len - kept);
    g_array_set_size(f->inbox, kept);
}

static int by_place(const void *a, const void *b)
{
    const DedupFetchRecord *x = a, *y = b;

    if (x->disk != y->disk) {
        return x->disk < y->disk ? -1 : 1;
    }
    if (x->target != y->target) {
        return x->target < y->target ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* False: nothing is waiting.  The lock is not held long: records come in. */
static bool next_generation(DedupFetch *f)
{
    unsigned kept = 0;
    GArray *t = f->gen;

    g_array_set_size(f->gen, 0);
    f->at = 0;
    WITH_QEMU_LOCK_GUARD(&f->lock) {
        f->gen = f->inbox;
        f->inbox = t;
    }
    for (unsigned i = 0; i < f->gen->len; i++) {
        DedupFetchRecord *rec = &g_array_index(f->gen, DedupFetchRecord, i);

        if (!dedup_incoming_wanted(f, rec)) {
            dedup_fetch_settle(f, 1);
        } else if (!dedup_fetch_locate(f, rec)) {
            dedup_fetch_refuse(f, rec, DEDUP_ANSWER_IO);
        } else {
            g_array_index(f->gen, DedupFetchRecord, kept++) = *rec;
        }
    }
    g_array_set_size(f->gen, kept);
    qsort(f->gen->data, kept, sizeof(DedupFetchRecord), by_place);
    return kept > 0;
}

DedupFetchRun *dedup_fetch_next_run(DedupFetch *f, uint64_t max)
{
    DedupFetchRecord *rec;
    unsigned first, n = 1;
    uint64_t end;
    DedupFetchRun *run;

    for (;;) {
        if (f->at == f->gen->len) {
            if (!next_generation(f)) {
                return NULL;
            }
            continue;
        }
        rec = &g_array_index(f->gen, DedupFetchRecord, f->at);
        if (dedup_incoming_wanted(f, rec)) {
            break;
        }
        dedup_fetch_settle(f, 1);
        f->at++;
    }
    first = f->at++;
    end = rec->offset + DEDUP_PAGE_SIZE;
    while (f->at < f->gen->len) {
        DedupFetchRecord *next = &rec[n];

        if (next->disk != rec->disk || next->target != rec->target ||
            next->offset > end + GAP_MAX ||
            next->offset + DEDUP_PAGE_SIZE - rec->offset > max) {
            break;
        }
        end = MAX(end, next->offset + DEDUP_PAGE_SIZE);
        f->at++;
        n++;
    }
    rec = &g_array_index(f->gen, DedupFetchRecord, first);
    run = g_malloc(sizeof(*run) + n * sizeof(*rec));
    run->f = f;
    run->target = dedup_fetch_target(f, rec);
    run->start = ROUND_DOWN(rec->offset, DEDUP_READ_ALIGN);
    run->end = ROUND_UP(end, DEDUP_READ_ALIGN);
    run->n = n;
    memcpy(run->recs, rec, n * sizeof(*rec));
    return run;
}
