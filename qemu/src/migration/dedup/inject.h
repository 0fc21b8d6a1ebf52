/*
 * Faults for tests
 *
 * Only a build of the flavour "faulty" has them; in all others every member is
 * a constant 0, and the compiler leaves out what depends on it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_INJECT_H
#define MIGRATION_DEDUP_INJECT_H

#include "flavour.h"

typedef struct DedupInject {
    uint32_t fetch_delay_us;    /* before each read */
    uint32_t pending_delay_us;  /* between a read and the compare-and-swap */
    uint32_t copy_delay_us;     /* while COPYING */
    uint32_t answer_delay_us;   /* before each message of answers */
    uint32_t window;            /* outstanding records at most; 0: as usual */
    uint32_t hold_below_ms;     /* downtime limit that allows a switch-over */
    uint32_t hold_postcopy_ms;  /* post-copy takes so long, at least */
    uint32_t hold_limit_us;     /* abort if a lock is held longer, hold.h */
    uint32_t compress_delay_us; /* a page, once a batch has been copied */
    uint32_t inflate_delay_us;  /* a page, before a batch is placed */
    uint32_t disk_turn_ms;      /* between two parts of a disk's bitmap */
    bool no_answers;            /* never answer */
    bool no_hello;              /* play a stock destination */
    bool no_hints;              /* play a destination that takes no hints */
    bool no_supersede;          /* BREAKS: let late fetches overwrite */
    bool no_verify;             /* BREAKS: take whatever was read */
    bool no_recv_bit;           /* BREAKS: leave the received bit clear */
    bool no_xbzrle_drop;        /* BREAKS: keep stale delta bases */
    bool no_redirty;            /* BREAKS: forget what is outstanding */
    bool no_flush;              /* BREAKS: no multifd flush after records */
    bool no_own_target;         /* BREAKS: read through the guest's nodes */
    bool no_quiesce;            /* BREAKS: read metadata of inactive images */
    bool no_epoch;              /* BREAKS: late records overwrite content */
    bool trust_acks;            /* BREAKS: stale answers count */
    bool no_bounds;             /* do at once what is done in pieces */
    bool zero_records;          /* records for zero pages, too */
    bool no_compare;            /* BREAKS: any hint sampled is valid */
    bool no_inflate_wait;       /* BREAKS: likewise at the destination */
    bool read_log;              /* as with KVM, which has a log of its own */
    bool defer_last;            /* BREAKS: put pages off in the last round */
    bool no_round_trip;         /* take the destination to be next door */
    bool no_claim;              /* leave pages requested to storage */
    bool no_atomic_place;       /* BREAKS: overwrite what post-copy placed */
} DedupInject;

#ifdef DEDUP_FAULTY
extern DedupInject dedup_inject;        /* from the environment, at start */
void dedup_inject_init(void);
#else
static const DedupInject dedup_inject = { 0 };

static inline void dedup_inject_init(void)
{
}
#endif

#endif
