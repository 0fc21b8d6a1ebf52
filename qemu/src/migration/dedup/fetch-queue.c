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
#define TRIM        (16 * DEDUP_WIRE_MAX_BATCH)

/* Post-copy: records by id, as many as a source has outstanding */
#define RING        (1024 * 1024)
#define RING_CHUNK  4096
#define HURRIED_MAX 1024

/* With the lock held */
static void remember(DedupFetch *f, const DedupFetchRecord *rec)
{
    unsigned at = rec->id % RING;
    DedupFetchRecord **chunk = &f->ring[at / RING_CHUNK];

    if (!*chunk) {
        *chunk = g_new0(DedupFetchRecord, RING_CHUNK);
    }
    (*chunk)[at % RING_CHUNK] = *rec;
}

void dedup_fetch_lazy(DedupFetch *f)
{
    bool opened;

    WITH_QEMU_LOCK_GUARD(&f->lock) {
        f->ring = g_new0(DedupFetchRecord *, RING / RING_CHUNK);
        f->hurried = g_array_new(false, false, sizeof(DedupFetchRecord));
        qatomic_set(&f->lazy, true);
        qatomic_set(&f->stopped, false);
        opened = f->opened;
    }
    if (opened) {
        dedup_fetch_kick(f);
    }
}

void dedup_fetch_hurry(DedupFetch *f, uint32_t id)
{
    DedupFetchRecord *chunk, *rec;

    WITH_QEMU_LOCK_GUARD(&f->lock) {
        chunk = f->ring[id % RING / RING_CHUNK];
        rec = chunk ? &chunk[id % RING_CHUNK] : NULL;
        if (!f->opened || !rec || rec->id != id ||
            f->hurried->len == HURRIED_MAX) {
            return;
        }
        g_array_append_val(f->hurried, *rec);
        stat64_add(&f->backlog, 1);
    }
    dedup_fetch_kick(f);
}

void dedup_fetch_queue_free(DedupFetch *f)
{
    for (unsigned i = 0; f->ring && i < RING / RING_CHUNK; i++) {
        g_free(f->ring[i]);
    }
    g_free(f->ring);
    g_array_unref(f->inbox);
    g_array_unref(f->gen);
    g_clear_pointer(&f->hurried, g_array_unref);
}

static DedupFetchRun *new_run(DedupFetch *f, const DedupFetchRecord *rec,
                              unsigned n, uint64_t end)
{
    DedupFetchRun *run = g_malloc0(sizeof(*run) + n * sizeof(*rec));

    run->f = f;
    run->target = dedup_fetch_target(f, rec);
    run->start = ROUND_DOWN(rec->offset, DEDUP_READ_ALIGN);
    run->end = ROUND_UP(end, DEDUP_READ_ALIGN);
    run->n = n;
    memcpy(run->recs, rec, n * sizeof(*rec));
    return run;
}

/* The oldest; false: there is none */
static bool take_hurried(DedupFetch *f, DedupFetchRecord *rec)
{
    QEMU_LOCK_GUARD(&f->lock);
    if (!f->hurried || !f->hurried->len) {
        return false;
    }
    *rec = g_array_index(f->hurried, DedupFetchRecord, 0);
    g_array_remove_index(f->hurried, 0);
    return true;
}

DedupFetchRun *dedup_fetch_next_hurried(DedupFetch *f)
{
    DedupFetchRecord rec;
    DedupFetchRun *run;

    while (take_hurried(f, &rec)) {
        /* What cannot be read is left to the queue it is in as well */
        if (dedup_incoming_wanted(f, &rec) && dedup_fetch_locate(f, &rec)) {
            run = new_run(f, &rec, 1, rec.offset + DEDUP_PAGE_SIZE);
            run->hurried = true;
            return run;
        }
        dedup_fetch_settle(f, 1);
    }
    return NULL;
}

void dedup_fetch_add(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
    bool opened;

    if (!n) {
        return;
    }
    stat64_add(&f->backlog, n);
    WITH_QEMU_LOCK_GUARD(&f->lock) {
        g_array_append_vals(f->inbox, recs, n);
        for (unsigned i = 0; f->lazy && i < n; i++) {
            remember(f, &recs[i]);
        }
        opened = f->opened;
    }
    if (opened) {
        dedup_fetch_kick(f);
    }
}

/*
 * Called for each element when there are many, it is through with all of them
 * before a sixteenth as many have come: elements have at most
 * DEDUP_WIRE_MAX_BATCH records.
 */
void dedup_fetch_trim(DedupFetch *f)
{
    QEMU_LOCK_GUARD(&f->lock);
    for (unsigned n = 0; n < TRIM && f->trimmed < f->inbox->len; n++) {
        DedupFetchRecord *rec = &g_array_index(f->inbox, DedupFetchRecord,
                                               f->trimmed);

        if (dedup_incoming_wanted(f, rec)) {
            f->trimmed++;
        } else {
            /* The last one takes its place: they are not in order */
            g_array_remove_index_fast(f->inbox, f->trimmed);
            dedup_fetch_settle(f, 1);
        }
    }
    if (f->trimmed >= f->inbox->len) {
        f->trimmed = 0;
    }
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
        f->trimmed = 0;
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
    if (!kept) {
        return false;
    }
    qsort(f->gen->data, kept, sizeof(DedupFetchRecord), by_place);
    return true;
}

DedupFetchRun *dedup_fetch_next_run(DedupFetch *f, uint64_t max)
{
    DedupFetchRecord *rec;
    unsigned first, n = 1;
    uint64_t end;

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
    return new_run(f, rec, n, end);
}
