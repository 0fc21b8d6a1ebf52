/*
 * What the destination knows of a migration
 *
 *   incoming.c       the state of each page, placing, the end
 *   incoming-load.c  what arrives: negotiation, elements
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_INCOMING_INT_H
#define MIGRATION_DEDUP_INCOMING_INT_H

#include "qemu/stats64.h"
#include "dedup-int.h"

typedef struct DedupIncoming {
    bool ever;
    bool announced;             /* SETUP was parsed */
    bool refuse;                /* a SETUP we do not understand */
    GPtrArray *rams;            /* DedupRam or NULL, by index in SETUP */
    GArray *limits;             /* uint64_t: pages of each, from SETUP */
    GPtrArray *blocks;          /* RAMBlock of each */
    uint32_t last_id;
    DedupFetch *fetch;
    DedupAnswers *answers;
    uint64_t max_backlog;

    bool stopped;
    int copying;
    Stat64 live;

    Stat64 records, fetched, superseded, nack_digest, nack_io;
    DedupIncomingInfo last;     /* once the fetcher is gone */
} DedupIncoming;
extern DedupIncoming dedup_in;

/* SETUP was parsed so far that the key is known: all is made ready */
void dedup_incoming_begin(const uint8_t *key);

/*
 * A record arrived: it takes the place of what the page's word holds.  Waits
 * for a memcpy under way.  Migration coroutine.
 */
void dedup_incoming_expect(DedupRam *dr, uint64_t page, uint32_t id);

#endif
