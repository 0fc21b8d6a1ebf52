/*
 * Compression: the pool of threads on the source
 *
 *   migration thread                            a thread of the pool
 *   ----------------                            --------------------
 *   take a page: into the batch that fills
 *   the batch is full: FILLING -> QUEUED -----> RUNNING: copy, compress
 *   send it: DONE -> FREE                <----- DONE
 *
 * The migration thread owns what is FREE, FILLING and DONE, a thread of the
 * pool what is RUNNING.  All functions are the migration thread's, but begin
 * and end, which are called when there is none.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_COMPRESS_POOL_H
#define MIGRATION_DEDUP_COMPRESS_POOL_H

#include "qemu/queue.h"
#include "compress.h"
#include "compress-batch.h"

/* A batch and what becomes of it */
typedef struct DedupJob {
    RAMBlock *rb;
    DedupBatch b;
    int level;
    int64_t ns, cpu_ns;                 /* what it took */
    bool copied;                        /* by its thread; under the lock */
    bool given_up;                      /* migration thread */
    QTAILQ_ENTRY(DedupJob) running;
    QSIMPLEQ_ENTRY(DedupJob) next;
    uint8_t raw[DEDUP_BATCH_RAW];
    uint8_t out[DEDUP_BATCH_RAW];
} DedupJob;

typedef QSIMPLEQ_HEAD(, DedupJob) DedupJobs;

void dedup_pool_init(void);
void dedup_pool_begin(void);
/* Ends the threads; what is left goes to @left */
void dedup_pool_end(DedupJobs *left);

void dedup_pool_add_thread(void);
unsigned dedup_pool_threads(void);

void dedup_pool_submit(DedupJob *job);
/* What is done goes to @done; @wait: for a moment, if nothing is */
void dedup_pool_collect(DedupJobs *done, bool wait);
/* What no thread has begun with, NULL: nothing */
DedupJob *dedup_pool_take_back(void);
/*
 * What a thread has copied and not compressed yet, NULL: nothing.  It is the
 * thread's until it comes out of dedup_pool_collect(), as given up; the pages
 * may be sent meanwhile, as the thread does not read them again.
 */
DedupJob *dedup_pool_give_up(void);

#endif
