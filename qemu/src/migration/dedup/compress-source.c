/*
 * Compression: the sender
 *
 *   migration thread                            a thread of the pool
 *   ----------------                            --------------------
 *   take a page: into the batch that fills
 *   the batch is full: FILLING -> QUEUED -----> RUNNING: copy, compress
 *   send it: DONE -> FREE                <----- DONE
 *
 * The migration thread owns what is FREE, FILLING and DONE, a thread of the
 * pool what is RUNNING.  There are two batches for each thread, one that it
 * works on and one that waits for it, and the one that fills.
 *
 * If all of them are taken, the migration thread waits for the first that is
 * done, but only while the link has something to do: else the page goes as
 * it is (compress-rate.h).  So it does at the end of a section, when all
 * batches are due: if the link idles, it takes back what is QUEUED, and gives
 * up what is RUNNING, which a host that is short of processors may let wait
 * for long.  The pages go as they are, and what the thread makes of its copy
 * is dropped when it is done.
 *
 * The accounting counts a page as a page, whatever it took: migrate's
 * auto-converge compares what the guest dirties with what was sent.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qemu/lockable.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "migration/misc.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "../options.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "compress.h"
#include "compress-batch.h"
#include "compress-rate.h"
#include "trace.h"

#define THREADS_DEFAULT 4
/* In the last round each thread shall have something to do at once */
#define LAST_PAGES      16
/* Rounds after which what is pending counts as what it takes on the link */
#define ROUNDS_SCALE    8
#define SCALE_MARGIN    1.25
/* Batches that tell about a ratio */
#define SCALE_BATCHES   16
/* Pages between two looks at the link while compression is off */
#define PROBE_PAGES     64
/* Between two looks at the link while threads are waited for */
#define PATIENCE_MS     4

typedef struct Job {
    RAMBlock *rb;
    DedupBatch b;
    int level;
    int64_t ns, cpu_ns;
    bool copied;                        /* by its thread; under the lock */
    bool given_up;                      /* migration thread */
    QTAILQ_ENTRY(Job) running;
    QSIMPLEQ_ENTRY(Job) next;
    uint8_t raw[DEDUP_BATCH_RAW];
    uint8_t out[DEDUP_BATCH_RAW];
} Job;

typedef QSIMPLEQ_HEAD(, Job) Jobs;

static struct {
    /* Under the BQL */
    bool want;
    unsigned want_threads;
    int want_level;

    /* Migration thread, from begin() to end() */
    bool running;
    bool last_round;
    QEMUFile *f;
    DedupLink link;
    DedupCompressRate rate;
    unsigned most_threads;
    Job *filling;
    Jobs free;
    unsigned in_flight;                 /* not free, not filling */
    unsigned waiting_pages;             /* in these */
    unsigned since_probe;
    uint64_t batches;

    /* Shared with the pool */
    QemuMutex lock;
    QemuCond work, progress;
    Jobs queued, done;
    QTAILQ_HEAD(, Job) running_jobs;
    bool quit;
    QemuThread threads[DEDUP_COMPRESS_THREADS_MAX];
    unsigned nthreads, idle;

    DedupCompressFigures fig;           /* written by the migration thread */
} cs;

/* The pool */

static void *compress_thread(void *opaque)
{
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    bool sample = true;

    qemu_mutex_lock(&cs.lock);
    while (true) {
        Job *job;
        int64_t start, cpu;

        while (QSIMPLEQ_EMPTY(&cs.queued) && !cs.quit) {
            cs.idle++;
            qemu_cond_wait(&cs.work, &cs.lock);
            cs.idle--;
        }
        if (cs.quit) {
            break;
        }
        job = QSIMPLEQ_FIRST(&cs.queued);
        QSIMPLEQ_REMOVE_HEAD(&cs.queued, next);
        QTAILQ_INSERT_TAIL(&cs.running_jobs, job, running);
        qemu_mutex_unlock(&cs.lock);

        start = get_clock();
        cpu = dedup_thread_ns();
        for (unsigned i = 0; i < job->b.n; i++) {
            memcpy(job->raw + i * DEDUP_BATCH_PAGE,
                   job->rb->host + (job->b.pages[i] << DEDUP_PAGE_BITS),
                   DEDUP_BATCH_PAGE);
        }
        WITH_QEMU_LOCK_GUARD(&cs.lock) {
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

        qemu_mutex_lock(&cs.lock);
        QTAILQ_REMOVE(&cs.running_jobs, job, running);
        QSIMPLEQ_INSERT_TAIL(&cs.done, job, next);
        qemu_cond_signal(&cs.progress);
    }
    qemu_mutex_unlock(&cs.lock);
    ZSTD_freeCCtx(ctx);
    return NULL;
}

static void add_thread(void)
{
    for (int i = 0; i < 2; i++) {
        Job *job = g_new0(Job, 1);

        QSIMPLEQ_INSERT_TAIL(&cs.free, job, next);
    }
    qemu_thread_create(&cs.threads[cs.nthreads++], "mig/src/zstd",
                       compress_thread, NULL, QEMU_THREAD_JOINABLE);
    cs.fig.threads = cs.nthreads;
}

/* What the migration thread does with batches */

static void send_pages(Job *job)
{
    for (unsigned i = 0; i < job->b.n; i++) {
        if (ram_dedup_save_content(job->rb, job->b.pages[i]) < 0) {
            qemu_file_set_error(cs.f, -EIO);
            return;
        }
    }
}

static void send_frame(Job *job)
{
    uint8_t header[DEDUP_BATCH_HEADER];
    size_t n = dedup_batch_header(header, &job->b);
    size_t all = 8 + 2 + 4 + n + job->b.len;

    qemu_put_be64(cs.f, RAM_SAVE_FLAG_DEDUP);
    qemu_put_be16(cs.f, DEDUP_ELEMENT_BATCH);
    qemu_put_be32(cs.f, n + job->b.len);
    qemu_put_buffer(cs.f, header, n);
    qemu_put_buffer(cs.f, job->b.frame, job->b.len);
    ram_transferred_add(all);
    stat64_add(&mig_stats.normal_pages, job->b.n);
    qatomic_set(&cs.fig.bytes, cs.fig.bytes + all);
    qatomic_set(&cs.fig.pages, cs.fig.pages + job->b.n);
}

static void finish_job(Job *job)
{
    trace_dedup_compress_batch(job->b.n, job->b.len, job->level, job->ns);
    dedup_compress_rate_batch(&cs.rate, job->b.n,
                              job->b.n * DEDUP_BATCH_PAGE, job->b.len,
                              job->ns);
    if (job->b.len) {
        send_frame(job);
        cs.batches++;
        cs.fig.level = job->level;
    } else {
        send_pages(job);
        cs.fig.plain_pages += job->b.n;
    }
}

/* It is sent, one way or another */
static void settle(Job *job)
{
    cs.in_flight--;
    cs.waiting_pages -= job->b.n;
}

/* Send what is done; @wait: for a moment, if nothing is */
static void collect(bool wait)
{
    Jobs done = QSIMPLEQ_HEAD_INITIALIZER(done);
    Job *job;

    WITH_QEMU_LOCK_GUARD(&cs.lock) {
        if (wait && QSIMPLEQ_EMPTY(&cs.done)) {
            qemu_cond_timedwait(&cs.progress, &cs.lock, PATIENCE_MS);
        }
        QSIMPLEQ_CONCAT(&done, &cs.done);
    }
    while ((job = QSIMPLEQ_FIRST(&done))) {
        QSIMPLEQ_REMOVE_HEAD(&done, next);
        cs.fig.ns += job->cpu_ns;
        if (!job->given_up) {
            finish_job(job);
            settle(job);
        }
        QSIMPLEQ_INSERT_HEAD(&cs.free, job, next);
    }
}

/* Take back what no thread has begun with: it goes as it is */
static void reclaim(void)
{
    Job *job;

    do {
        WITH_QEMU_LOCK_GUARD(&cs.lock) {
            job = QSIMPLEQ_FIRST(&cs.queued);
            if (job) {
                QSIMPLEQ_REMOVE_HEAD(&cs.queued, next);
            }
        }
        if (job) {
            send_pages(job);
            cs.fig.skipped_pages += job->b.n;
            settle(job);
            QSIMPLEQ_INSERT_HEAD(&cs.free, job, next);
        }
    } while (job && dedup_link_idle(&cs.link));
}

/* A thread has a copy of the pages and no processor: they go as they are */
static void give_up_running(void)
{
    Job *job;

    WITH_QEMU_LOCK_GUARD(&cs.lock) {
        QTAILQ_FOREACH(job, &cs.running_jobs, running) {
            if (job->copied && !job->given_up) {
                break;
            }
        }
    }
    if (job) {
        /* Its thread reads neither guest memory nor what is sent here */
        job->given_up = true;
        send_pages(job);
        cs.fig.skipped_pages += job->b.n;
        settle(job);
    }
}

static void dispatch(void)
{
    Job *job = cs.filling;

    cs.filling = NULL;
    job->copied = job->given_up = false;
    job->level = cs.last_round && !cs.rate.forced ? DEDUP_COMPRESS_LEVEL_LOW
                                                  : cs.rate.level;
    cs.in_flight++;
    cs.waiting_pages += job->b.n;
    WITH_QEMU_LOCK_GUARD(&cs.lock) {
        QSIMPLEQ_INSERT_TAIL(&cs.queued, job, next);
        qemu_cond_signal(&cs.work);
    }
}

/* A batch to fill; false: the link idles, and the threads have enough to do */
static bool take_free(void)
{
    while (QSIMPLEQ_EMPTY(&cs.free)) {
        collect(false);
        if (!QSIMPLEQ_EMPTY(&cs.free)) {
            break;
        }
        if (cs.nthreads < cs.most_threads) {
            add_thread();
        } else if (dedup_link_idle(&cs.link)) {
            return false;
        } else {
            collect(true);
        }
    }
    cs.filling = QSIMPLEQ_FIRST(&cs.free);
    QSIMPLEQ_REMOVE_HEAD(&cs.free, next);
    return true;
}

static unsigned batch_pages(void)
{
    uint64_t room = dedup_link_room();
    unsigned most = cs.last_round ? LAST_PAGES : DEDUP_BATCH_PAGES;

    return room == UINT64_MAX ? most :
           dedup_compress_rate_pages(&cs.rate, room, cs.waiting_pages, most);
}

bool dedup_compress_save_page(RAMBlock *rb, unsigned long page)
{
    DedupRam *dr = rb->dedup;

    if (!cs.running || migration_in_postcopy() || !dr || !dr->ids) {
        return false;
    }
    if (migrate_multifd() &&
        buffer_is_zero(rb->host + ((ram_addr_t)page << DEDUP_PAGE_BITS),
                       DEDUP_PAGE_SIZE)) {
        return false;               /* its channels see to zero pages */
    }
    if (!cs.rate.on) {
        if (++cs.since_probe % PROBE_PAGES == 0) {
            dedup_compress_rate_probe(&cs.rate, !dedup_link_idle(&cs.link));
            dedup_compress_rate_window(&cs.rate, get_clock(),
                                       migration_transferred_bytes(),
                                       cs.most_threads);
        }
        cs.fig.skipped_pages++;
        return false;
    }
    if (cs.filling &&
        (cs.filling->rb != rb ||
         page <= cs.filling->b.pages[cs.filling->b.n - 1])) {
        dispatch();
    }
    if (!cs.filling) {
        collect(false);
        if (!take_free()) {
            dedup_compress_rate_skipped(&cs.rate);
            cs.fig.skipped_pages++;
            return false;
        }
        cs.filling->rb = rb;
        cs.filling->b.block = dr->index;
        cs.filling->b.n = 0;
    }
    cs.filling->b.pages[cs.filling->b.n++] = page;
    if (cs.filling->b.n >= batch_pages()) {
        dispatch();
        /* What is under way may be all that the limit allows */
        while (cs.in_flight && batch_pages() < LAST_PAGES &&
               !dedup_link_idle(&cs.link)) {
            collect(true);
        }
    }
    return true;
}

void dedup_compress_flush(void)
{
    if (!cs.running) {
        return;
    }
    if (cs.filling) {
        dispatch();
    }
    collect(false);
    while (cs.in_flight) {
        if (dedup_link_idle(&cs.link)) {
            reclaim();
        }
        collect(true);
        if (cs.in_flight && dedup_link_idle(&cs.link)) {
            give_up_running();
        }
    }
    dedup_compress_rate_window(&cs.rate, get_clock(),
                               migration_transferred_bytes(), cs.nthreads);
}

void dedup_compress_last_round(void)
{
    cs.last_round = true;
}

/* Beginning and end */

void dedup_compress_want(bool want, unsigned threads, int level)
{
    cs.want = want;
    cs.want_threads = threads;
    cs.want_level = level;
    memset(&cs.fig, 0, sizeof(cs.fig));
}

bool dedup_compress_wanted(void)
{
    return cs.want && (!migrate_multifd() || migrate_multifd_compression() ==
                                             MULTIFD_COMPRESSION_NONE);
}

bool dedup_compress_running(void)
{
    return cs.running;
}

void dedup_compress_begin(QEMUFile *f)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    cs.f = f;
    cs.most_threads = cs.want_threads ?:
        MAX(1, MIN(cpus / 2, THREADS_DEFAULT));
    cs.last_round = false;
    cs.in_flight = cs.waiting_pages = cs.since_probe = 0;
    cs.batches = 0;
    cs.quit = false;
    cs.filling = NULL;
    QSIMPLEQ_INIT(&cs.free);
    QSIMPLEQ_INIT(&cs.queued);
    QSIMPLEQ_INIT(&cs.done);
    QTAILQ_INIT(&cs.running_jobs);
    QSIMPLEQ_INSERT_TAIL(&cs.free, g_new0(Job, 1), next);
    dedup_link_init(&cs.link, f);
    dedup_compress_rate_init(&cs.rate, get_clock(), cs.want_level);
    add_thread();
    cs.running = true;
}

static void free_jobs(Jobs *jobs)
{
    Job *job;

    while ((job = QSIMPLEQ_FIRST(jobs))) {
        QSIMPLEQ_REMOVE_HEAD(jobs, next);
        g_free(job);
    }
}

void dedup_compress_end(void)
{
    if (!cs.running) {
        return;
    }
    WITH_QEMU_LOCK_GUARD(&cs.lock) {
        cs.quit = true;
        qemu_cond_broadcast(&cs.work);
    }
    while (cs.nthreads) {
        qemu_thread_join(&cs.threads[--cs.nthreads]);
    }
    cs.running = false;
    free_jobs(&cs.free);
    free_jobs(&cs.queued);
    free_jobs(&cs.done);
    g_clear_pointer(&cs.filling, g_free);
    cs.want = false;
}

void dedup_compress_query(DedupCompressFigures *fig)
{
    *fig = cs.fig;
}

uint64_t dedup_compress_saved_bytes(void)
{
    uint64_t pages = qatomic_read(&cs.fig.pages) << DEDUP_PAGE_BITS;
    uint64_t bytes = qatomic_read(&cs.fig.bytes);

    return pages > bytes ? pages - bytes : 0;
}

/*
 * Not in the first rounds: while each is much shorter than the one before it,
 * the switch-over had better wait for the next, which makes it shorter, too.
 */
uint64_t dedup_compress_on_link(uint64_t bytes)
{
    if (!cs.running || !cs.rate.on || migration_in_postcopy() ||
        cs.batches < SCALE_BATCHES ||
        stat64_get(&mig_stats.dirty_sync_count) < ROUNDS_SCALE) {
        return bytes;
    }
    return bytes * MIN(1.0, cs.rate.ratio * SCALE_MARGIN);
}

void dedup_compress_init(void)
{
    qemu_mutex_init(&cs.lock);
    qemu_cond_init(&cs.work);
    qemu_cond_init(&cs.progress);
}
