/*
 * What the parts of the fetcher share
 *
 *   fetch.c        begins and ends it; the reads
 *   fetch-queue.c  records that wait, and what to read next
 *   fetch-nodes.c  disks: where a record's bytes are, and in which node
 *
 * Threads: records and extents come from the migration coroutine (or thread);
 * the queue and the reads belong to an IOThread, see fetch.c.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_FETCH_INT_H
#define MIGRATION_DEDUP_FETCH_INT_H

#include "qemu/lockable.h"
#include "qemu/stats64.h"
#include "system/iothread.h"
#include "dedup-int.h"

#define DEDUP_READ_MAX      (1024 * 1024)

typedef struct DedupFetchDisk {
    char *path;
    DedupCopy copy;
    unsigned slot;
    DedupExtents extents;               /* under the lock */
    GPtrArray *targets;                 /* BlockBackend or NULL, opened once */
} DedupFetchDisk;

struct DedupFetch {
    uint8_t key[DEDUP_KEY_LEN];
    GPtrArray *disks;                   /* DedupFetchDisk; all at start() */
    IOThread *iothread;
    AioContext *ctx;

    QemuMutex lock;
    GArray *inbox;                      /* DedupFetchRecord */
    bool opened;
    unsigned ref;                       /* owner, bottom halves, reads */

    bool stopped;                       /* atomic */
    bool kicked;                        /* atomic */

    /* IOThread */
    GArray *gen;                        /* DedupFetchRecord, sorted */
    unsigned at;                        /* the next of them */
    unsigned inflight;
    uint64_t inflight_bytes;
    int64_t rate_mark;
    uint64_t rate_bytes;

    uint64_t rate;                      /* atomic */
    Stat64 backlog, reads, bytes, read_ns, max_read_ns;
};

/* One read and the records it serves */
typedef struct DedupFetchRun {
    DedupFetch *f;
    BlockBackend *blk;
    uint64_t start, end;
    unsigned n;
    DedupFetchRecord recs[];
} DedupFetchRun;

static inline void dedup_fetch_settle(DedupFetch *f, unsigned n)
{
    stat64_add(&f->backlog, -(uint64_t)n);
}

static inline void dedup_fetch_refuse(DedupFetch *f,
                                      const DedupFetchRecord *rec,
                                      DedupAnswer why)
{
    dedup_incoming_refuse(f, rec, why);
    dedup_fetch_settle(f, 1);
}

/* Look at the queue soon.  Any thread; not before the nodes are open. */
void dedup_fetch_kick(DedupFetch *f);

/* What to read next, at most @max bytes; NULL: nothing.  IOThread. */
DedupFetchRun *dedup_fetch_next_run(DedupFetch *f, uint64_t max);

/* Find target and offset of the record; false: it is nowhere we know */
bool dedup_fetch_locate(DedupFetch *f, DedupFetchRecord *rec);
BlockBackend *dedup_fetch_target(DedupFetch *f, const DedupFetchRecord *rec);

/* Main loop, in a bottom half */
void dedup_fetch_open_nodes(DedupFetch *f);
void dedup_fetch_free_disk(void *disk);         /* a GDestroyNotify */

#endif
