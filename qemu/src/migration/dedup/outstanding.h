/*
 * Records sent and not answered yet
 *
 * Outstanding = still dirty.  Everything here belongs to the migration
 * thread; functions that touch the dirty bitmap are called with its mutex
 * held.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_OUTSTANDING_H
#define MIGRATION_DEDUP_OUTSTANDING_H

#include "dedup-int.h"

typedef struct DedupOutstanding {
    GPtrArray *rams;            /* DedupRam, by index in SETUP */
    GPtrArray *chunks;          /* of OutstandingRec, by id */
    uint32_t next_id;           /* the first is 1 */
    uint32_t resend_id;         /* resend below this one */
    uint64_t count;
} DedupOutstanding;

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

/* Make all of them dirty; how many it were */
uint64_t dedup_outstanding_redirty(DedupOutstanding *o);

/*
 * Make every page dirty for which the destination still expects content: the
 * guest may have said meanwhile that it is free, which clears dirty bits.
 */
void dedup_outstanding_pay(DedupOutstanding *o);

#endif
