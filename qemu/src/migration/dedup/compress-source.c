/*
 * Compression: the sender, in the migration thread
 *
 * Pages go into the batch that fills, full ones to the pool of threads
 * (compress-pool.h), and out what is done.  There are two batches for each
 * thread, one that it works on and one that waits for it, and the one that
 * fills.
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
#include "qemu/timer.h"
#include "migration/misc.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "../options.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "compress.h"
#include "compress-batch.h"
#include "compress-pool.h"
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
#define PROBE_PAGES     16

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
    DedupJob *filling;
    DedupJobs free;
    unsigned in_flight;                 /* not free, not filling */
    unsigned waiting_pages;             /* in these */
    unsigned since_probe;
    uint64_t batches;

    DedupCompressFigures fig;           /* written by the migration thread */
} cs;

static void add_thread(void)
{
    for (int i = 0; i < 2; i++) {
        DedupJob *job = g_new0(DedupJob, 1);

        QSIMPLEQ_INSERT_TAIL(&cs.free, job, next);
    }
    dedup_pool_add_thread();
    cs.fig.threads = dedup_pool_threads();
}

/* What the migration thread does with batches */

static void send_pages(DedupJob *job)
{
    for (unsigned i = 0; i < job->b.n; i++) {
        if (ram_dedup_save_content(job->rb, job->b.pages[i]) < 0) {
            qemu_file_set_error(cs.f, -EIO);
            return;
        }
    }
}

static void send_frame(DedupJob *job)
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

static void finish_job(DedupJob *job)
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
static void settle(DedupJob *job)
{
    cs.in_flight--;
    cs.waiting_pages -= job->b.n;
}

/* Send what is done; @wait: for a moment, if nothing is */
static void collect(bool wait)
{
    DedupJobs done = QSIMPLEQ_HEAD_INITIALIZER(done);
    DedupJob *job;

    dedup_pool_collect(&done, wait);
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
    DedupJob *job;

    do {
        job = dedup_pool_take_back();
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
    DedupJob *job = dedup_pool_give_up();

    if (job) {
        send_pages(job);
        cs.fig.skipped_pages += job->b.n;
        settle(job);
    }
}

static void dispatch(void)
{
    DedupJob *job = cs.filling;

    cs.filling = NULL;
    job->level = cs.last_round && !cs.rate.forced ? DEDUP_COMPRESS_LEVEL_LOW
                                                  : cs.rate.level;
    cs.in_flight++;
    cs.waiting_pages += job->b.n;
    dedup_pool_submit(job);
}

/* A batch to fill; false: the link idles, and the threads have enough to do */
static bool take_free(void)
{
    while (QSIMPLEQ_EMPTY(&cs.free)) {
        collect(false);
        if (!QSIMPLEQ_EMPTY(&cs.free)) {
            break;
        }
        if (dedup_pool_threads() < cs.most_threads) {
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

/* Look at the link; may switch compression on or off */
static void probe(void)
{
    dedup_compress_rate_probe(&cs.rate, !dedup_link_idle(&cs.link));
    dedup_compress_rate_window(&cs.rate, get_clock(),
                               migration_transferred_bytes(),
                               cs.most_threads);
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
            probe();
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
        probe();
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
                               migration_transferred_bytes(),
                               cs.most_threads);
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
    cs.filling = NULL;
    QSIMPLEQ_INIT(&cs.free);
    QSIMPLEQ_INSERT_TAIL(&cs.free, g_new0(DedupJob, 1), next);
    dedup_pool_begin();
    dedup_link_init(&cs.link, f);
    dedup_compress_rate_init(&cs.rate, get_clock(), cs.want_level,
                             dedup_link_limit(), cs.most_threads);
    add_thread();
    cs.running = true;
}

void dedup_compress_end(void)
{
    DedupJob *job;

    if (!cs.running) {
        return;
    }
    cs.running = false;
    dedup_pool_end(&cs.free);
    while ((job = QSIMPLEQ_FIRST(&cs.free))) {
        QSIMPLEQ_REMOVE_HEAD(&cs.free, next);
        g_free(job);
    }
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
    dedup_pool_init();
}
