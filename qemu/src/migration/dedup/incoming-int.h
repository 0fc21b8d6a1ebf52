/*
 * What the destination knows of a migration
 *
 *   incoming.c       the state of each page, placing, the end
 *   incoming-load.c  what arrives: negotiation, elements
 *   incoming-hints.c the source's hints, for the next migration
 *   incoming-lazy.c  post-copy: pages are placed while the guest runs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_INCOMING_INT_H
#define MIGRATION_DEDUP_INCOMING_INT_H

#include "qemu/stats64.h"
#include "dedup-int.h"

typedef struct DedupIncoming {
    bool ever;
    bool greeted;               /* HELLO was sent: SETUP may come */
    bool announced;             /* SETUP was parsed */
    bool refuse;                /* a SETUP we do not understand */
    bool lazy;                  /* records may come in post-copy */
    GPtrArray *rams;            /* DedupRam or NULL, by index in SETUP */
    GArray *limits;             /* uint64_t: pages of each, from SETUP */
    GPtrArray *blocks;          /* RAMBlock of each */
    uint32_t last_id;
    uint32_t epoch;             /* of the records that arrive now */
    bool overtaken;             /* content came that is older than its page */
    DedupFetch *fetch;
    DedupAnswers *answers;
    uint64_t max_backlog;

    bool stopped;
    int copying;
    Stat64 live;

    unsigned hint_disks;        /* of the source's hints; 0: not listed yet */
    unsigned hint_slots[DEDUP_WIRE_MAX_DISKS];
    uint32_t hint_block;        /* where the next one may be */
    uint64_t hint_page;
    Stat64 hints;               /* taken */
    const char *hint_error;     /* why the others are ignored, or NULL */

    Stat64 records, fetched, superseded, lazily, nack_digest, nack_io;
    DedupIncomingInfo last;     /* once the fetcher is gone */
    DedupRefusedDiskList *refused;      /* likewise, of @last */
} DedupIncoming;
extern DedupIncoming dedup_in;

/* SETUP was parsed so far that the key is known: all is made ready */
void dedup_incoming_begin(const uint8_t *key);

/*
 * A record arrived: it takes the place of what the page's word holds.  Waits
 * for a memcpy under way.  False: content of its epoch or a later one was
 * here before, the record is void.  Migration coroutine.
 */
bool dedup_incoming_expect(DedupRam *dr, uint64_t page, uint32_t id);

/* The page is in place: nothing is expected for it any more.  Any thread. */
void dedup_incoming_forget(DedupRam *dr, uint64_t page);

/* Let others have their turn, if it is time.  Migration coroutine. */
void dedup_incoming_give_way(void);

/* Elements: never a reason to fail.  Migration coroutine. */
void dedup_incoming_hint_disks(const uint8_t *buf, size_t len);
void dedup_incoming_hints(const uint8_t *buf, size_t len);

/* In post-copy */

/* Is the page in place? */
bool dedup_lazy_received(DedupRam *dr, uint64_t page);
/* Place what was read, unless content was faster; false: it cannot be */
bool dedup_lazy_place(const DedupFetchRecord *rec, const void *data);

#endif
