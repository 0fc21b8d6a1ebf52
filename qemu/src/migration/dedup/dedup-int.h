/*
 * Migration without duplicated content: inside
 * ============================================
 *
 * A guest page whose bytes also stand on a disk that the destination can
 * read need not cross the migration link.  The source sends a record (page,
 * place, digest) in its stead; the destination reads the place, checks the
 * digest, puts the page into memory and answers.
 *
 *   hints.c      which place each page was read from or written to last
 *   map.c        the same from outside (the guest's page cache)
 *   index.c      the same by content; index-memory.c  of the pages,
 *                index-disks.c  of the disks, content-table.c  to match them
 *   sample.c     how many of them still hold
 *   resolver.c   guest offsets -> offsets in the nodes of the backing chain
 *   source.c     the course of a migration; source-*.c  its records, answers,
 *                beginning and end, post-copy, and hints for the next one
 *   outstanding.c  records not answered; deferred.c  pages put off;
 *   pace.c       waiting or sending; redirtied.c  not sending hot pages
 *   incoming.c   the destination's pages: waiting, being placed, superseded
 *   incoming-load.c  what arrives there; incoming-hints.c  hints;
 *   incoming-lazy.c  in post-copy
 *   fetch.c      the destination's reads; fetch-queue.c  their order;
 *   fetch-nodes.c  the disks they are from
 *   answers.c    the destination's answers
 *   compress.h   pages that go through the link, compressed; compress-*.c
 *   wire.c       encoding; digest.c  digests; extents.c  sorted extents
 *   control.c    QMP; inject.c  faults for tests; hold.c  how long locks are
 *                held; aside.c  freeing what is large, without them
 *   disk-seed.c  QMP of the seeded mirror, which is block/dedup-seed.c
 *
 * Two rules make it right, and nothing else is needed for that:
 *
 * 1. Hints are never trusted.  A record carries the digest of what the page
 *    holds after its dirty bit was cleared, exactly when content would have
 *    been copied; the destination places only bytes with that digest.
 *
 * 2. A record counts for nothing until it is answered.  An outstanding page
 *    is a dirty page: it adds to what is pending, and at the switch-over
 *    (or the start of post-copy, or its end, or when the guest there wants
 *    it) it is sent in full.  So storage that is slow, gone or wrong can
 *    neither delay nor falsify the hand-over.
 *
 * A page on the source, between two synchronisations of the dirty bitmap:
 *
 *            record sent              answer OK
 *   dirty ---------------> outstanding --------> clean
 *     ^  \                  |  |  |
 *     |   `-- content ---------|---------------> clean
 *     |                     |  |
 *     +--- NACK, resent, ---+  +-- dirtied by the guest: the next scan
 *          switch-over             supersedes the record
 *
 * and on the destination, in one 32-bit word per page:
 *
 *           record              read, digest right
 *   NONE ----------> id (waiting) -----------> id | COPYING --> NONE, OK
 *    ^                 |    |
 *    |   content       |    | read failed, digest wrong
 *    +-----------------+    v
 *    |   content        id | MISSING, NACK
 *    +----------------------+
 *
 * Content that arrives while COPYING waits for the memcpy to end.  A newer
 * record takes the place of an id, waiting or missing.  The words that are
 * not NONE are counted: the guest is not started while there is one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_INT_H
#define MIGRATION_DEDUP_INT_H

#include "migration/dedup-compat.h"
#include "migration/dedup.h"
#include "qapi/qapi-types-dedup.h"
#include "qemu/queue.h"
#include "qemu/rcu.h"
#include "digest.h"
#include "inject.h"
#include "wire.h"

#define DEDUP_PAGE_SIZE     4096
#define DEDUP_PAGE_BITS     12
#define DEDUP_MAX_SLOTS     DEDUP_WIRE_MAX_DISKS

/*
 * Hints.  One 64-bit word a page, read and written atomically and without
 * locks by any thread: slot 7 | sector 41 | fingerprint 16.  0: no hint.
 */
#define DEDUP_HINT_CHUNK    4096    /* pages, allocated at once (32 KiB) */

typedef struct DedupHint {
    uint64_t word;              /* as found, for dedup_hint_drop() */
    unsigned slot;              /* disk, see dedup_slot_of() */
    uint64_t sector;            /* guest offset / 512 */
    uint16_t fingerprint;       /* 0: not taken */
} DedupHint;

/* What is known about a RAM block; RAMBlock.dedup */
typedef struct DedupRam {
    struct rcu_head rcu;
    RAMBlock *rb;
    void *host;
    uint64_t pages;             /* of max_length */
    uint64_t **chunks;          /* hints */
    size_t nchunks;
    size_t forgotten;           /* chunks, since tracking ended; BQL */

    /*
     * During a migration.  Source: id of the outstanding record.
     * Destination: the state word, id or id | DEDUP_COPYING.
     */
    uint32_t *ids;
    uint32_t *epochs;           /* destination with multifd: of the newest
                                   content, or of the record placed */
    unsigned long *direct;      /* source: send in full, once */
    unsigned long *waiting;     /* source: in DedupDeferred */
    unsigned long *later;       /* source: a record when there is room */
    unsigned long *owed;        /* source: a record went, nothing settled it */
    unsigned long *told;        /* source: the destination has the hint */
    unsigned long *redirtied;   /* source: put off and not sent since, or NULL */
    bool gone;                  /* unplugged during the migration: no @rb */
    unsigned index;             /* in SETUP */
    QTAILQ_ENTRY(DedupRam) next;
} DedupRam;

#define DEDUP_COPYING       0x80000000u
#define DEDUP_MISSING       0x40000000u
#define DEDUP_MAX_ID        0x3fffffffu

DedupRam *dedup_ram_get(RAMBlock *rb);          /* makes it, if migratable */
DedupRam *dedup_ram_first(void);                /* under RCU or the BQL */
DedupRam *dedup_ram_next(DedupRam *dr);
void dedup_ram_make_all(void);
void dedup_ram_free(DedupRam *dr);              /* any thread */

/* The migration's own bitmap, RAMBlock.bmap; for those below */
void dedup_bmap_set(RAMBlock *rb, unsigned long page);
uint64_t dedup_bmap_set_all(RAMBlock *rb, unsigned long *pages);

/* In an RCU critical section and with the dirty bitmap's mutex held */
static inline void dedup_set_dirty(DedupRam *dr, uint64_t page)
{
    if (!qatomic_read(&dr->gone)) {
        dedup_bmap_set(dr->rb, page);
    }
}

/*
 * Likewise all pages of a bitmap, which is empty then; how many it were.  It
 * takes as long as a look at the bitmap.
 */
static inline uint64_t dedup_set_all_dirty(DedupRam *dr, unsigned long *pages)
{
    return qatomic_read(&dr->gone) ? 0 : dedup_bmap_set_all(dr->rb, pages);
}

/* The disk's slot, made on demand; 0 when there are too many.  Any thread. */
unsigned dedup_slot_of(BlockBackend *blk);

/* BQL.  If it ends, the hints are to be forgotten. */
void dedup_track(bool enable);
/* BQL.  Some of them; true: there are more. */
bool dedup_forget_hints(void);
bool dedup_tracking(void);
bool dedup_hint_get(DedupRam *dr, uint64_t page, DedupHint *hint);
void dedup_hint_set(DedupRam *dr, uint64_t page, unsigned slot,
                    uint64_t sector, uint16_t fingerprint);
/*
 * As set(), from another source than the guest's I/O: a hint that has a
 * fingerprint stays.  Whether it was set.
 */
bool dedup_hint_fill(DedupRam *dr, uint64_t page, unsigned slot,
                     uint64_t sector, uint16_t fingerprint);
void dedup_hint_drop(DedupRam *dr, uint64_t page, uint64_t word);
/*
 * First page at or after @page that may have a hint; dr->pages if none.  So
 * that it does not take long, one that has none may be returned.
 */
uint64_t dedup_hint_next(DedupRam *dr, uint64_t page);
void dedup_hints_query(DedupHintsInfo *info);
void dedup_hints_init(void);

/* Sorted extents that do not overlap.  No locking: whoever has it. */
#define DEDUP_EXTENTS_LEAF  256

typedef struct DedupExtentLeaf {
    unsigned n;
    DedupExtent e[DEDUP_EXTENTS_LEAF];
} DedupExtentLeaf;

typedef struct DedupExtents {
    DedupExtentLeaf **leaves;
    unsigned nleaves, alloc;
    unsigned n;                 /* extents in all of them */
} DedupExtents;

/*
 * Of all disks, 128 MiB.  Full ones have 4 million extents, but a peer can
 * make them hold few.
 */
#define DEDUP_MAX_LEAVES    16384

/*
 * Takes the place of whatever it overlaps.  *@leaves: in use, of all that
 * share the limit.  False: there are too many.
 */
bool dedup_extents_add(DedupExtents *x, const DedupExtent *e,
                       unsigned *leaves);
/* The extent that holds all of [start, start + len), or NULL */
const DedupExtent *dedup_extents_find(const DedupExtents *x, uint64_t start,
                                      uint64_t len);
/* One after the other, from *@leaf and *@i 0 on; NULL: no more */
const DedupExtent *dedup_extents_nth(const DedupExtents *x, unsigned *leaf,
                                     unsigned *i);
void dedup_extents_free(DedupExtents *x);
/* Likewise, later: see aside.h */
void dedup_extents_discard(DedupExtents *x, GPtrArray *rubbish);

/* Resolver.  One for each shared disk of an outgoing migration. */
typedef struct DedupResolver DedupResolver;
DedupResolver *dedup_resolver_new(BlockBackend *blk);   /* BQL */
/* The guest offset was not found; resolve what is around it.  Any thread. */
void dedup_resolver_want(DedupResolver *r, uint64_t offset);
void dedup_resolver_kick(DedupResolver *r);
bool dedup_resolver_busy(DedupResolver *r);
/*
 * Move what was found since the last call to @out, @most at once; its number.
 * One thread.
 */
unsigned dedup_resolver_take(DedupResolver *r, DedupExtents *out,
                             unsigned most);
/* Pause soon, until the next kick(); true: it has not yet.  Any thread. */
bool dedup_resolver_halt(DedupResolver *r);
/* End for good, wait until nothing is read any more.  BQL. */
void dedup_resolver_end(DedupResolver *r);
/* Gives up; what still runs ends by itself.  BQL. */
void dedup_resolver_free(DedupResolver *r);

/* QOM path of the device @blk is attached to, or NULL.  BQL. */
char *dedup_blk_path(BlockBackend *blk);
BlockBackend *dedup_blk_by_path(const char *path);
/* By qdev ID or QOM path of the device, or of the one it is part of.  BQL. */
BlockBackend *dedup_blk_by_device(const char *id, Error **errp);

/* External maps */
void dedup_map_load(int fd, Error **errp);
void dedup_map_query(DedupHintsInfo *info);

/* Content index */
DedupIndexInfo *dedup_index_query(void);        /* NULL: there was none */
void dedup_index_init(void);

/* What the destination may take of its storage, a second; 0: no limit */
typedef struct DedupLimits {
    uint64_t bytes;
    uint32_t reads;
} DedupLimits;

/* Source.  Each under the BQL. */
bool dedup_source_arm(bool has_copy, DedupCopy copy, DedupDiskList *disks,
                      bool resend, bool records, bool lazy, bool put_off,
                      const DedupLimits *limits, Error **errp);
void dedup_source_disarm(void);
DedupSourceInfo *dedup_source_query(void);
void dedup_source_init(void);

/* Seeded mirrors */
void dedup_disk_seed_init(void);

/* Destination */
DedupIncomingInfo *dedup_incoming_query(void);

/* One record as the fetcher sees it */
typedef struct DedupFetchRecord {
    DedupRam *dr;
    uint64_t page;
    uint64_t sector;
    uint32_t id;
    uint32_t epoch;
    uint32_t disk;
    uint32_t target;            /* filled in by fetch-nodes.c */
    uint64_t offset;            /* likewise, in the target */
    uint8_t digest[DEDUP_DIGEST_LEN];
} DedupFetchRecord;

typedef struct DedupFetch DedupFetch;
DedupFetch *dedup_fetch_new(const uint8_t *key);     /* opens nothing yet */
/* Before dedup_fetch_start(); takes over @path.  False: it has that disk. */
bool dedup_fetch_add_disk(DedupFetch *f, char *path, DedupCopy copy);
unsigned dedup_fetch_disks(DedupFetch *f);
/* Bytes and reads a second at most, 0: no limit.  Before start(). */
void dedup_fetch_limit(DedupFetch *f, uint64_t bytes, uint32_t reads);
/* Opens the nodes from a bottom half, then begins */
void dedup_fetch_start(DedupFetch *f);
bool dedup_fetch_add_extent(DedupFetch *f, unsigned disk,
                            const DedupExtent *e);
void dedup_fetch_add(DedupFetch *f, const DedupFetchRecord *recs, unsigned n);
/* Forget some of what waits to be read and was superseded; takes 2 ms */
void dedup_fetch_trim(DedupFetch *f);
uint64_t dedup_fetch_backlog(DedupFetch *f);
/* Bytes a second over the last moments */
uint64_t dedup_fetch_rate(DedupFetch *f);
void dedup_fetch_query(DedupFetch *f, DedupIncomingInfo *info);
/* Begin no more reads.  Any thread. */
void dedup_fetch_halt(DedupFetch *f);
/*
 * Begin to read again, for post-copy: the guest's nodes are not read from any
 * more, and dedup_fetch_hurry() finds records.
 */
void dedup_fetch_lazy(DedupFetch *f);
/* A vCPU waits for the page of record @id: read it next.  Any thread. */
void dedup_fetch_hurry(DedupFetch *f, uint32_t id);
/* Disks of which not all can be read here, and why.  BQL. */
DedupRefusedDiskList *dedup_fetch_refused(DedupFetch *f);
/* Returns at once; reads under way end by themselves and free @f.  BQL. */
void dedup_fetch_stop(DedupFetch *f);

/*
 * Called by the fetcher from its thread.  Is the record still wanted?  Put
 * the page, read from the device of @slot and proven, into memory.  Or give
 * up on it.
 */
bool dedup_incoming_wanted(DedupFetch *f, const DedupFetchRecord *rec);
void dedup_incoming_place(DedupFetch *f, const DedupFetchRecord *rec,
                          unsigned slot, const void *data);
void dedup_incoming_refuse(DedupFetch *f, const DedupFetchRecord *rec,
                           DedupAnswer why);

typedef struct DedupAnswers DedupAnswers;
DedupAnswers *dedup_answers_new(DedupFetch *f);
void dedup_answers_add(DedupAnswers *a, uint32_t id, DedupAnswer answer);
/* Joins the thread; what was not sent is dropped */
void dedup_answers_free(DedupAnswers *a);

#endif
