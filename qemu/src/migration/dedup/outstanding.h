/*
 * Records sent and not answered yet
 *
 * Outstanding = still dirty.  Everything here belongs to the migration
 * thread; functions that touch the dirty bitmap are called with its mutex
 * held.  The guest may be stopped meanwhile, so each function takes time for
 * what it handles, none for all that was ever sent.
 *
 * Records are kept in a ring by id, those that count in a list from the
 * newest to the oldest.  A record that is still there when its place in the
 * ring is due again goes in full: DEDUP_RING records were sent after it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_OUTSTANDING_H
#define MIGRATION_DEDUP_OUTSTANDING_H

#include "dedup-int.h"

/* Twice what may be outstanding at once; 20 bytes each, as far as it is used */
#define DEDUP_RING          (2 * 1024 * 1024)
#define DEDUP_RING_CHUNK    4096

typedef struct DedupOutstandingRec {
    uint32_t id;                /* 0: never used */
    uint32_t ram;
    uint32_t page;              /* 16 TiB in one RAM block */
    uint32_t newer, older;      /* ids, 0: none */
} DedupOutstandingRec;

typedef struct DedupOutstanding {
    GPtrArray *rams;            /* DedupRam, by index in SETUP */
    DedupOutstandingRec *ring[DEDUP_RING / DEDUP_RING_CHUNK];
    uint32_t next_id;           /* the first is 1; read by other threads */
    uint32_t newest;            /* id of the list's beginning, 0: empty */
    uint32_t first_id;          /* those before were given up all at once */
    uint64_t count;             /* read by other threads */
    uint64_t evicted;           /* went in full for want of a place */
} DedupOutstanding;

static inline bool dedup_is_outstanding(DedupOutstanding *o, DedupRam *dr,
                                        uint64_t page)
{
    return dr->ids[page] >= o->first_id;
}

void dedup_outstanding_init(DedupOutstanding *o);
void dedup_outstanding_free(DedupOutstanding *o);

/* The next id now stands for @page; false: ids are used up */
bool dedup_outstanding_add(DedupOutstanding *o, DedupRam *dr, uint64_t page);

/* Content takes the place of whatever record is outstanding; was there one? */
bool dedup_outstanding_supersede(DedupOutstanding *o, DedupRam *dr,
                                 uint64_t page);

/* The page that @id stands for if the record counts still, else NULL */
DedupRam *dedup_outstanding_settle(DedupOutstanding *o, uint32_t id,
                                   uint64_t *page);

/* Make up to @n of those sent last dirty, to go in full; how many it were */
uint64_t dedup_outstanding_resend(DedupOutstanding *o, uint64_t n);

/* Make all of them dirty, to go in full, records end; how many it were */
uint64_t dedup_outstanding_redirty(DedupOutstanding *o);

/*
 * Likewise, and every other page for which the destination still expects
 * content: the guest may have said meanwhile that it is free, which clears
 * dirty bits.  Takes no longer if there are many.
 */
uint64_t dedup_outstanding_pay(DedupOutstanding *o);

#endif
