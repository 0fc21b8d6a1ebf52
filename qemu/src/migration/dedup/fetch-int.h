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
#define DEDUP_READ_ALIGN    4096        /* for O_DIRECT, whatever the device */

/* A place to read from, see fetch-target.c */
typedef struct DedupTarget DedupTarget;
/* Of a disk both sides share.  Main loop, not in a coroutine. */
DedupTarget *dedup_target_shared(BlockDriverState *bs, AioContext *ctx,
                                 Error **errp);
/* Of a copy of our own.  Likewise. */
DedupTarget *dedup_target_own(BlockDriverState *bs, Error **errp);
/* @start and @len aligned; 0 or -errno.  The fetcher's IOThread. */
int coroutine_fn dedup_target_read(DedupTarget *t, uint64_t start,
                                   uint64_t len, void *buf);
/* Let reads fail that hang, if that can be done.  Main loop. */
void dedup_target_cut(DedupTarget *t);
/* Is the guest's own node read from? */
bool dedup_target_is_guests(DedupTarget *t);
/* Main loop, when nothing is being read */
void dedup_target_free(DedupTarget *t);

typedef struct DedupFetchDisk {
    char *path;
    DedupCopy copy;
    unsigned slot;
    DedupExtents extents;               /* under the lock */
    GPtrArray *targets;                 /* DedupTarget or NULL, opened once */
    char *refused;                      /* why there is none, or NULL */
} DedupFetchDisk;

struct DedupFetch {
    uint8_t key[DEDUP_KEY_LEN];
    GPtrArray *disks;                   /* DedupFetchDisk; all at start() */
    IOThread *iothread;
    AioContext *ctx;

    QemuMutex lock;
    GArray *inbox;                      /* DedupFetchRecord */
    unsigned trimmed;                   /* of these, see dedup_fetch_trim() */
    unsigned leaves;                    /* of all disks' extents */
    bool opened;
    unsigned ref;                       /* owner, bottom halves, reads */

    /* Post-copy, under the lock */
    bool lazy;                          /* also read without it */
    DedupFetchRecord **ring;            /* by id, in chunks */
    GArray *hurried;                    /* DedupFetchRecord */
    unsigned hurrying;                  /* IOThread: being read */

    bool stopped;                       /* atomic */
    bool kicked;                        /* atomic */

    /* IOThread */
    GArray *gen;                        /* DedupFetchRecord, sorted */
    unsigned at;                        /* the next of them */
    unsigned inflight;
    uint64_t inflight_bytes;
    int64_t rate_mark;
    uint64_t rate_bytes;
    uint64_t limit_bytes, limit_reads;  /* a second; 0: none.  Set before */
    int64_t next_read_ns;               /* not before, for the limits */
    QEMUTimer *timer;                   /* wakes up then; from open to free */

    uint64_t rate;                      /* atomic */
    Stat64 backlog, reads, bytes, read_ns, max_read_ns, hurries;
};

/* One read and the records it serves */
typedef struct DedupFetchRun {
    DedupFetch *f;
    DedupTarget *target;
    uint64_t start, end;                /* aligned */
    bool hurried;
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

/* A page that a vCPU waits for; NULL: none.  IOThread. */
DedupFetchRun *dedup_fetch_next_hurried(DedupFetch *f);
/* Frees what these need */
void dedup_fetch_queue_free(DedupFetch *f);
/* What to read next, at most @max bytes; NULL: nothing.  IOThread. */
DedupFetchRun *dedup_fetch_next_run(DedupFetch *f, uint64_t max);

/* Find target and offset of the record; false: it is nowhere we know */
bool dedup_fetch_locate(DedupFetch *f, DedupFetchRecord *rec);
DedupTarget *dedup_fetch_target(DedupFetch *f, const DedupFetchRecord *rec);

/* Main loop, in a bottom half */
void dedup_fetch_open_nodes(DedupFetch *f);
void dedup_fetch_free_disk(void *disk);         /* a GDestroyNotify */
/* Let reads fail that hang, where that can be done.  Main loop. */
void dedup_fetch_cut(DedupFetch *f);

#endif
