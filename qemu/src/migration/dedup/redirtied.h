/*
 * Pages that the guest has written to again: when it pays to look
 *
 * A page whose bit is set in the dirty log, when the scan comes to it, is in
 * the next round whatever happens to it in this one: sending it now is in
 * vain (Clark et al., NSDI'05, section 5.4).  So it is put off, which is as
 * if it had been sent: it is clean, until the next synchronisation of the
 * dirty bitmap brings it back.
 *
 * Nothing of this is needed for the memory to be right, but one thing: what
 * is put off has to come back.  See source-redirtied.c.
 *
 * Here is when to look, and how long a round has to last at least.  Pure
 * arithmetic; times in microseconds unless they have another name.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_REDIRTIED_H
#define MIGRATION_DEDUP_REDIRTIED_H

#include <stdbool.h>
#include <stdint.h>

#define DEDUP_LOOK_NS   20      /* for one bit, estimated: the caches miss */

typedef struct DedupRedirtied {
    bool on;                    /* bits are looked at in this round */
    uint32_t round;             /* synchronisations before it */
    int64_t began;
    uint64_t looked, found;     /* bits, in this round */
    int64_t read_us;            /* reading the log, in this round */
    int64_t read_at;            /* the end of the last time */
    int64_t last_read_us;       /* what that took */
    int64_t sync_us;            /* what the last synchronisation took */
} DedupRedirtied;

void dedup_redirtied_init(DedupRedirtied *r, int64_t now);
/*
 * @round synchronisations until now, at a link that takes @page_ns for a
 * page.  A round in which looking cost more than it saved, and a millisecond, is
 * followed by one without.
 */
void dedup_redirtied_round(DedupRedirtied *r, uint32_t round, int64_t now,
                           double page_ns);
/* One bit was looked at, and it was set if @found */
void dedup_redirtied_looked(DedupRedirtied *r, bool found);
/* Is the accelerator's log to be read now? */
bool dedup_redirtied_read_due(const DedupRedirtied *r, int64_t now);
/* It was, from @start to @now */
void dedup_redirtied_read(DedupRedirtied *r, int64_t start, int64_t now);
/*
 * The scan is through: how long the link has to idle before the bitmap is
 * synchronised again.  Never longer than what was put off would have taken.
 */
int64_t dedup_redirtied_pause(const DedupRedirtied *r, int64_t now,
                              double page_ns);

#endif
