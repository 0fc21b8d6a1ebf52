/*
 * How long QEMU's locks are held for us
 *
 * The BQL, the dirty bitmap's mutex and the lock of a qcow2 image stop the
 * guest's I/O, or its vCPUs, while they are held.  So what we do under one is
 * done in pieces of at most so much work, between which the lock is free.
 *
 * Each piece is named where it begins.  The flavour "faulty" records the
 * longest of each name, see "info dedup"; in all others nothing is left of it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_HOLD_H
#define MIGRATION_DEDUP_HOLD_H

#include "inject.h"

/*
 * Steps in a piece, at most: a hint, a record, a page, or 512 pages of a
 * bitmap.  One takes 30 ns at most, except if a page is read.
 */
#define DEDUP_STEPS     65536

static inline uint64_t dedup_at_once(uint64_t steps)
{
    return dedup_inject.no_bounds ? UINT64_MAX : steps;
}

/* So many steps go through the bitmaps of so many pages */
#define DEDUP_BITMAP_STEPS(pages)   ((pages) / 512)

#ifdef DEDUP_FAULTY

typedef struct DedupHoldSite {
    const char *lock, *name;
    struct DedupHoldSite *next;
    bool listed;
    uint64_t holds;
    uint64_t steps;             /* the most in one of them, likewise: */
    int64_t cpu_ns, wall_ns;
} DedupHoldSite;

/* Of one thread, which must not leave it to another, nor yield */
typedef struct DedupHold {
    DedupHoldSite *site;
    struct DedupHold *outer;
    uint64_t steps;
    int64_t cpu_ns, wall_ns;    /* at its beginning */
} DedupHold;

DedupHold *dedup_hold_begin(DedupHold *h, DedupHoldSite *site);
void dedup_hold_end(DedupHold **h);
void dedup_hold_steps(uint64_t n);
int64_t dedup_hold_cpu_ns(void);        /* of this thread */
/* A piece that may yield, and that is over: what it took, or not more */
void dedup_hold_note(DedupHoldSite *site, uint64_t steps, int64_t cpu_ns,
                     int64_t wall_ns);
/* A line for each name; to be freed */
char *dedup_hold_report(void);

#define DEDUP_HOLD_SITE(var, lock_, name_)                              \
    static DedupHoldSite var = { .lock = lock_, .name = name_ }

/* From here to the end of the block @lock is held for us */
#define DEDUP_HOLD(lock, name)                                          \
    DEDUP_HOLD_SITE(hold_site_, lock, name);                            \
    __attribute__((cleanup(dedup_hold_end), unused)) DedupHold *hold_ = \
        dedup_hold_begin(&(DedupHold) { 0 }, &hold_site_)

#else

#define DEDUP_HOLD_SITE(var, lock, name)    enum { var }
#define DEDUP_HOLD(lock, name)              enum { hold_ }
#define dedup_hold_note(site, steps, cpu_ns, wall_ns)                   \
    ((void)(cpu_ns), (void)(wall_ns))

static inline int64_t dedup_hold_cpu_ns(void)
{
    return 0;
}

static inline void dedup_hold_steps(uint64_t n)
{
}

#endif

#endif
