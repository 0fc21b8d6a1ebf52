/*
 * Pages put off because they are about to be written to disk
 *
 * A page whose hint is stale is most often a page of the guest's page cache
 * that was written to and not written back yet.  When it has been, moments
 * later, a record will do.  So such a page waits for a while, as dirty as
 * before (it counts as pending, and is sent in full at the switch-over), and
 * comes back as soon as its hint changes.  It also goes in full as soon as
 * the link has nothing else to do: waiting longer would only keep the
 * migration from coming to its end.
 *
 * Whether that pays is watched: only a few pages wait until enough have been
 * seen to come back with a hint, and none any more once most do not.
 *
 * Everything here belongs to the migration thread, with the dirty bitmap's
 * mutex held; times in microseconds.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_DEFERRED_H
#define MIGRATION_DEDUP_DEFERRED_H

#include "dedup-int.h"

typedef struct DedupDeferred {
    GArray *queue;              /* of DeferredPage, oldest first */
    uint64_t count;             /* pages that wait: bits set in .waiting */
    uint64_t paid, expired;     /* how it ended */
    int64_t reviewed;
} DedupDeferred;

void dedup_deferred_init(DedupDeferred *d);
void dedup_deferred_free(DedupDeferred *d);

/* The page's hint @word is stale.  True: it waits; false: send it now. */
bool dedup_deferred_add(DedupDeferred *d, DedupRam *dr, uint64_t page,
                        uint64_t word, int64_t now);
/* The page is being sent, whichever way */
void dedup_deferred_done(DedupDeferred *d, DedupRam *dr, uint64_t page,
                         bool paid);
/* Make dirty again what has a new hint or has waited long enough */
void dedup_deferred_review(DedupDeferred *d, int64_t now);
/*
 * Make up to @n of those without a new hint dirty again, oldest first, to go
 * in full; how many it were
 */
uint64_t dedup_deferred_give_up(DedupDeferred *d, uint64_t n);
/* Likewise all of them */
uint64_t dedup_deferred_release(DedupDeferred *d);

#endif
