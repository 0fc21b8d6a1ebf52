/*
 * How long the longest pieces of work take that a peer can ask for
 *
 * bench_bounds MILLIONS: of records.  Prints "name value unit" for each.
 * Processor time of this thread, so that a busy machine does not count.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdio.h>
#include <time.h>
#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "fetch-int.h"
#include "outstanding.h"

#define PAGES       (1 << 20)
#define EXTENTS     (1 << 20)
#define WAITING     (2 << 20)

DedupInject dedup_inject;
static uint64_t dirty;
static unsigned long dirty_map[PAGES / 64];

void dedup_ram_free(DedupRam *dr)
{
    abort();                            /* none is unplugged */
}

void dedup_bmap_set(RAMBlock *rb, unsigned long page)
{
    dirty++;
}

/* As in 0003-source.patch */
uint64_t dedup_bmap_set_all(RAMBlock *rb, unsigned long *pages)
{
    uint64_t n = 0;

    for (size_t i = 0; i < PAGES / 64; i++) {
        if (pages[i]) {
            dirty_map[i] |= pages[i];
            n += __builtin_popcountl(pages[i]);
            pages[i] = 0;
        }
    }
    return n;
}

/* What the queue of records calls; they are superseded, all but every other */
static uint32_t words[WAITING];

bool dedup_incoming_wanted(DedupFetch *f, const DedupFetchRecord *rec)
{
    return qatomic_read(&words[rec->page]) == rec->id;
}

void dedup_incoming_refuse(DedupFetch *f, const DedupFetchRecord *rec,
                           DedupAnswer why)
{
}

bool dedup_fetch_locate(DedupFetch *f, DedupFetchRecord *rec)
{
    return false;
}

DedupTarget *dedup_fetch_target(DedupFetch *f, const DedupFetchRecord *rec)
{
    return NULL;
}

void dedup_fetch_kick(DedupFetch *f)
{
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

/* One record is never answered, all others are, but for the last million */
static void records(unsigned long n)
{
    static DedupOutstanding o;
    static RAMBlock rb;
    DedupRam dr = { .rb = &rb, .pages = PAGES };
    uint64_t page, bytes = 0;
    double start;

    dedup_outstanding_init(&o);
    dr.ids = g_new0(uint32_t, PAGES);
    dr.direct = bitmap_new(PAGES);
    dr.owed = bitmap_new(PAGES);
    g_ptr_array_add(o.rams, &dr);
    dedup_outstanding_add(&o, &dr, 0);
    for (unsigned long i = 1; i < n; i++) {
        dedup_outstanding_add(&o, &dr, 1 + i % (PAGES - 1));
        if (i < n - PAGES) {
            dedup_outstanding_settle(&o, o.newest, &page);
        }
    }
    for (unsigned i = 0; i < G_N_ELEMENTS(o.ring); i++) {
        bytes += o.ring[i] ? DEDUP_RING_CHUNK * sizeof(*o.ring[i]) : 0;
    }
    start = now_ms();
    dedup_outstanding_pay(&o);
    printf("redirty %.3f ms\n", now_ms() - start);
    printf("record-memory %.1f MiB\n", bytes / 1048576.0);
    dedup_outstanding_free(&o);
}

/* As many extents as a payload of 64 KiB holds, descending, among others */
static void extents(void)
{
    DedupExtents x = { 0 };
    unsigned leaves = 0;
    double start;

    for (uint64_t i = 0; i < EXTENTS; i++) {
        DedupExtent e = { i << 20, 4096, i << 13, 0, 0 };

        dedup_extents_add(&x, &e, &leaves);
    }
    start = now_ms();
    for (uint64_t i = 2427; i; i--) {
        DedupExtent e = { (i << 20) + 65536, 4096, i << 14, 1, 0 };

        dedup_extents_add(&x, &e, &leaves);
    }
    printf("descending-extents %.3f ms\n", now_ms() - start);
    dedup_extents_free(&x);
}

/* A look at records that wait, at random pages, because there are many */
static void queue(void)
{
    DedupFetch f = { 0 };
    double start, longest = 0;

    qemu_mutex_init(&f.lock);
    f.inbox = g_array_new(false, false, sizeof(DedupFetchRecord));
    f.gen = g_array_new(false, false, sizeof(DedupFetchRecord));
    for (uint32_t i = 0; i < WAITING; i++) {
        DedupFetchRecord rec = { .page = i * 2654435761u % WAITING,
                                 .id = i + 1 };

        words[rec.page] = i % 2 ? rec.id : 0;
        dedup_fetch_add(&f, &rec, 1);
    }
    while (stat64_get(&f.backlog) > WAITING / 2) {
        start = now_ms();
        dedup_fetch_trim(&f);
        longest = MAX(longest, now_ms() - start);
    }
    printf("trim %.3f ms\n", longest);
    dedup_fetch_queue_free(&f);
}

int main(int argc, char **argv)
{
    records((argc > 1 ? atol(argv[1]) : 1) * 1000000ul);
    extents();
    queue();
    return 0;
}
