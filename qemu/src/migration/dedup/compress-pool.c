/*
 * Compression: the pool of threads on the source, see compress-pool.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "compress-pool.h"

/* Between two looks at the link while threads are waited for */
#define PATIENCE_MS     4

static struct {
    QemuMutex lock;
    QemuCond work, progress;
    DedupJobs queued, done;
    QTAILQ_HEAD(, DedupJob) running;
    bool quit;

    /* Migration thread */
    QemuThread threads[DEDUP_COMPRESS_THREADS_MAX];
    unsigned nthreads;
} pool;

static void *compress_thread(void *opaque)
{
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    bool sample = true;

    qemu_mutex_lock(&pool.lock);
    while (true) {
        DedupJob *job;
        int64_t start, cpu;

        while (QSIMPLEQ_EMPTY(&pool.queued) && !pool.quit) {
            qemu_cond_wait(&pool.work, &pool.lock);
        }
        if (pool.quit) {
            break;
        }
        job = QSIMPLEQ_FIRST(&pool.queued);
        QSIMPLEQ_REMOVE_HEAD(&pool.queued, next);
        QTAILQ_INSERT_TAIL(&pool.running, job, running);
        qemu_mutex_unlock(&pool.lock);

        start = get_clock();
        cpu = dedup_thread_ns();
        for (unsigned i = 0; i < job->b.n; i++) {
            memcpy(job->raw + i * DEDUP_BATCH_PAGE,
                   job->rb->host + (job->b.pages[i] << DEDUP_PAGE_BITS),
                   DEDUP_BATCH_PAGE);
        }
        WITH_QEMU_LOCK_GUARD(&pool.lock) {
            job->copied = true;
        }
        if (dedup_inject.compress_delay_us) {
            g_usleep(dedup_inject.compress_delay_us * job->b.n);
        }
        job->b.frame = job->out;
        job->b.len = ctx ? dedup_batch_deflate(ctx, job->level, sample,
                                               job->raw, job->b.n, job->out)
                         : 0;
        sample = !job->b.len;
        job->ns = get_clock() - start;
        job->cpu_ns = dedup_thread_ns() - cpu;

        qemu_mutex_lock(&pool.lock);
        QTAILQ_REMOVE(&pool.running, job, running);
        QSIMPLEQ_INSERT_TAIL(&pool.done, job, next);
        qemu_cond_signal(&pool.progress);
    }
    qemu_mutex_unlock(&pool.lock);
    ZSTD_freeCCtx(ctx);
    return NULL;
}

void dedup_pool_add_thread(void)
{
    qemu_thread_create(&pool.threads[pool.nthreads++], "mig/src/zstd",
                       compress_thread, NULL, QEMU_THREAD_JOINABLE);
}

unsigned dedup_pool_threads(void)
{
    return pool.nthreads;
}

void dedup_pool_submit(DedupJob *job)
{
    job->copied = job->given_up = false;
    WITH_QEMU_LOCK_GUARD(&pool.lock) {
        QSIMPLEQ_INSERT_TAIL(&pool.queued, job, next);
        qemu_cond_signal(&pool.work);
    }
}

void dedup_pool_collect(DedupJobs *done, bool wait)
{
    QEMU_LOCK_GUARD(&pool.lock);
    if (wait && QSIMPLEQ_EMPTY(&pool.done)) {
        qemu_cond_timedwait(&pool.progress, &pool.lock, PATIENCE_MS);
    }
    QSIMPLEQ_CONCAT(done, &pool.done);
}

DedupJob *dedup_pool_take_back(void)
{
    DedupJob *job;

    QEMU_LOCK_GUARD(&pool.lock);
    job = QSIMPLEQ_FIRST(&pool.queued);
    if (job) {
        QSIMPLEQ_REMOVE_HEAD(&pool.queued, next);
    }
    return job;
}

DedupJob *dedup_pool_give_up(void)
{
    DedupJob *job;

    QEMU_LOCK_GUARD(&pool.lock);
    QTAILQ_FOREACH(job, &pool.running, running) {
        if (job->copied && !job->given_up) {
            job->given_up = true;
            break;
        }
    }
    return job;
}

void dedup_pool_init(void)
{
    qemu_mutex_init(&pool.lock);
    qemu_cond_init(&pool.work);
    qemu_cond_init(&pool.progress);
}

void dedup_pool_begin(void)
{
    pool.quit = false;
    QSIMPLEQ_INIT(&pool.queued);
    QSIMPLEQ_INIT(&pool.done);
    QTAILQ_INIT(&pool.running);
}

void dedup_pool_end(DedupJobs *left)
{
    WITH_QEMU_LOCK_GUARD(&pool.lock) {
        pool.quit = true;
        qemu_cond_broadcast(&pool.work);
    }
    while (pool.nthreads) {
        qemu_thread_join(&pool.threads[--pool.nthreads]);
    }
    QSIMPLEQ_CONCAT(left, &pool.queued);
    QSIMPLEQ_CONCAT(left, &pool.done);
}
