/*
 * The page words of incoming.c under real threads
 *
 * As in a migration there are
 *
 *   the stream    (main thread) sends a record or content for pages in
 *                 rounds; content goes the main way, in a compressed batch,
 *                 which other threads place, or to a multifd channel
 *   2 multifd     supersede and write, or zero, what the stream gave them
 *                 (stress-channels.h)
 *   3 fetchers    take any record, not the oldest; place the page as it was
 *                 when the record was made, or refuse it
 *
 * Each page is filled with the number of its version.  At the end of a
 * migration, or when stop() came in the midst of it, each page must hold
 * what the stream sent last, if that has arrived; whole; and nothing may
 * touch it any more, though fetchers still hold records of it.
 *
 * stress_incoming SECONDS [no-supersede|no-epoch]: with that safeguard taken
 * out it must see corruption, or it would prove nothing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <pthread.h>
#include <stdio.h>
#include "stress-channels.h"

#define ROUNDS      40
#define QUEUE       1024
#define FETCHERS    3

static unsigned long errors;
static bool broken;             /* a safeguard is taken out */

/* What the stream, the source really, knows of a page */
static struct {
    uint32_t id;                /* outstanding record */
    uint64_t newest;            /* version last sent as content or record */
    bool dirty;                 /* NACKed */
    bool fetched;               /* ACKed: @newest must be there */
    bool content;               /* sent in full: @newest must be there */
} pages[RAM_PAGES];
static uint32_t next_id;
static uint32_t page_of_id[ROUNDS * RAM_PAGES * 2];

static uint64_t seed_of(unsigned n)
{
    return 0x9e3779b97f4a7c15ULL * (n + 1);
}

static uint64_t rnd(uint64_t *s)
{
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 0x2545f4914f6cdd1dULL >> 20;
}

static void fail(const char *what, uint64_t page, uint64_t got,
                 uint64_t want)
{
    if (errors++ < 5 && !broken) {
        printf("# page %" PRIu64 ": %s: version %" PRIu64 ", not %" PRIu64
               "\n", page, what, got, want);
    }
}

static void check_page(const char *what, uint64_t page, uint64_t want)
{
    for (unsigned i = 0; i < WORDS; i++) {
        if (memory[page][i] != want) {
            fail(what, page, memory[page][i], want);
            return;
        }
    }
}

/* Fetchers.  The sector of a record carries the version. */

typedef struct Job {
    DedupFetch *f;
    DedupFetchRecord rec;
} Job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static Job jobs[QUEUE];
static unsigned njobs;

/* Of migrations that are over, while records of them are still queued */
static GPtrArray *old_fetches;

void incoming_queue(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < n; i++) {
        /* When full, one is forgotten: storage that never answers */
        unsigned at = njobs < QUEUE ? njobs++ : i % QUEUE;

        jobs[at] = (Job) { f, recs[i] };
    }
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
}

/* Freed when no read refers to it; here: at the very end */
void dedup_fetch_stop(DedupFetch *f)
{
    g_ptr_array_add(old_fetches, f);
}

static void *fetcher(void *opaque)
{
    uint64_t s = seed_of(100 + (uintptr_t)opaque), data[WORDS];

    pthread_mutex_lock(&lock);
    while (!qatomic_read(&quit)) {
        unsigned at;
        Job job;

        if (!njobs) {
            pthread_cond_wait(&cond, &lock);
            continue;
        }
        at = rnd(&s) % njobs;
        job = jobs[at];
        jobs[at] = jobs[--njobs];
        pthread_mutex_unlock(&lock);

        if (rnd(&s) % 4 == 0) {
            sched_yield();
        }
        if (rnd(&s) % 4 || dedup_incoming_wanted(job.f, &job.rec)) {
            for (unsigned i = 0; i < WORDS; i++) {
                data[i] = job.rec.sector;
            }
            if (rnd(&s) % 8) {
                dedup_incoming_place(job.f, &job.rec, 1, data);
            } else {
                dedup_incoming_refuse(job.f, &job.rec, DEDUP_ANSWER_IO);
            }
        }
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Answers */

static pthread_mutex_t answer_lock = PTHREAD_MUTEX_INITIALIZER;
static DedupResult answers[ROUNDS * RAM_PAGES * 2];
static unsigned nanswers;

void incoming_answered(uint32_t id, DedupAnswer answer)
{
    pthread_mutex_lock(&answer_lock);
    answers[nanswers++] = (DedupResult) { id, answer };
    pthread_mutex_unlock(&answer_lock);
}

static void take_answers(void)
{
    pthread_mutex_lock(&answer_lock);
    for (unsigned i = 0; i < nanswers; i++) {
        uint32_t page = page_of_id[answers[i].id];

        if (pages[page].id == answers[i].id) {
            pages[page].id = 0;
            pages[page].fetched = answers[i].status == DEDUP_ANSWER_OK;
            pages[page].dirty = !pages[page].fetched;
        }
    }
    nanswers = 0;
    pthread_mutex_unlock(&answer_lock);
}

/* The stream */

static uint64_t version;
static uint32_t epoch;

/* The batch of this round */
static uint64_t batch_pages[RAM_PAGES];
static uint64_t batch_raw[RAM_PAGES][WORDS];
static unsigned nbatch;

static void send_batch(void)
{
    /* As two, so that there is something for two threads */
    unsigned half = nbatch / 2;

    if ((half && incoming_batch(0, batch_pages, half,
                                (uint8_t *)batch_raw[0])) ||
        (nbatch > half && incoming_batch(0, batch_pages + half,
                                         nbatch - half,
                                         (uint8_t *)batch_raw[half]))) {
        fail("batch refused", batch_pages[0], 0, 0);
    }
    nbatch = 0;
}

static void content(uint32_t page, uint64_t version)
{
    dedup_incoming_supersede(&blocks[0], (uint64_t)page << 12, 0);
    write_page(page, version);
}

static void send_content(uint32_t page, uint64_t v, unsigned way)
{
    pages[page].id = 0;
    pages[page].newest = v;
    pages[page].dirty = pages[page].fetched = false;
    pages[page].content = true;
    if (way == 0) {
        content(page, v);
    } else if (way > CHANNELS) {
        batch_pages[nbatch] = page;
        for (unsigned i = 0; i < WORDS; i++) {
            batch_raw[nbatch][i] = v;
        }
        nbatch++;
    } else {
        channel_give(way - 1, page, epoch, v);
    }
}

static void send_records(DedupRecord *recs, unsigned n, uint32_t first)
{
    g_autofree uint8_t *buf = g_malloc(DEDUP_WIRE_RECORDS_BOUND(n));

    if (n && incoming_element(DEDUP_ELEMENT_RECORDS, buf,
                              dedup_encode_records(buf, first, recs, n))) {
        fail("record refused", recs[0].page, 0, 0);
    }
}

/*
 * Each page at most once an epoch, as the scan has it.  The scan may begin
 * anew in the middle of a round, as when a RAM block comes or goes: then the
 * bitmap may be synchronised with the channels ahead of the records.
 */
static void send_round(uint64_t *s, bool last)
{
    DedupRecord recs[RAM_PAGES] = { { 0 } };
    uint32_t first = next_id;
    unsigned n = 0;

    take_answers();
    epoch++;
    if (incoming_epoch(epoch)) {
        fail("epoch refused", 0, 0, 0);
    }
    channels_begin();
    for (uint32_t page = 0; page < RAM_PAGES; page++) {
        unsigned what = rnd(s) % 8, way = rnd(s) % (CHANNELS + 2);

        if (last) {
            /* Outstanding is still dirty */
            if (pages[page].id || pages[page].dirty) {
                send_content(page, pages[page].newest, way);
            } else if (what < 2) {
                send_content(page, ++version, way);
            }
        } else if (what < 3) {
            recs[n++] = (DedupRecord) { .page = page, .sector = ++version };
            page_of_id[next_id] = page;
            pages[page].id = next_id++;
            pages[page].newest = version;
            pages[page].dirty = pages[page].fetched = false;
            pages[page].content = false;
        } else if (what < 5) {
            send_content(page, ++version, way);
        } else if (what == 5) {
            send_content(page, 0, way);
        } else if (pages[page].dirty || (what == 6 && pages[page].id)) {
            send_content(page, pages[page].newest, way);    /* resent */
        }
    }
    epoch++;
    for (unsigned i = 0; i < n; i++) {
        if (rnd(s) % 4 == 0) {
            send_content(recs[i].page, ++version, 1 + rnd(s) % CHANNELS);
        }
    }
    channels_go();
    send_records(recs, n, first);
    send_batch();
    if (dedup_incoming_sync()) {
        fail("batches", 0, 0, 0);
    }
    channels_sync();
}

static void check_all(const char *what)
{
    take_answers();
    for (uint32_t page = 0; page < RAM_PAGES; page++) {
        if (pages[page].content || pages[page].fetched) {
            check_page(what, page, pages[page].newest);
        }
    }
}

/* Word for word what live says */
static void check_live(void)
{
    uint64_t n = 0;

    for (int i = 0; i < RAM_PAGES; i++) {
        n += ram.ids[i] != 0;
    }
    if (n != stat64_get(&dedup_in.live)) {
        fail("live", 0, stat64_get(&dedup_in.live), n);
    }
}

static void migrate(uint64_t *s)
{
    unsigned rounds = rnd(s) % ROUNDS + 1;
    bool complete = rnd(s) % 2;

    memset(pages, 0, sizeof(pages));
    nanswers = 0;
    next_id = 1;
    epoch = 0;
    if (incoming_setup()) {
        fail("SETUP refused", 0, 0, 0);
        return;
    }
    while (rounds--) {
        send_round(s, false);
    }
    if (complete) {
        send_round(s, true);
        if (dedup_incoming_finish()) {
            fail("not complete", 0, stat64_get(&dedup_in.live), 0);
        }
    } else {
        dedup_incoming_stop();
    }
    check_live();
    check_all(complete ? "complete" : "stopped");

    /* The guest runs, or the other half of a post-copy does */
    for (uint32_t page = 0; page < RAM_PAGES; page++) {
        write_page(page, ++version);
    }
    if (rnd(s) % 2) {
        dedup_incoming_cleanup();
    }
    for (int i = rnd(s) % 8; i; i--) {
        sched_yield();
    }
    for (uint32_t page = 0; page < RAM_PAGES; page++) {
        check_page("after the end", page, version - RAM_PAGES + 1 + page);
    }
    dedup_incoming_cleanup();
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    pthread_t threads[FETCHERS];
    uint64_t s = seed_of(0);
    unsigned long n = 0;
    int64_t end;

    dedup_inject.no_supersede = argc > 2 && !strcmp(argv[2], "no-supersede");
    dedup_inject.no_epoch = argc > 2 && !strcmp(argv[2], "no-epoch");
    broken = dedup_inject.no_supersede || dedup_inject.no_epoch;
    quiet = broken;
    old_fetches = g_ptr_array_new_with_free_func(g_free);
    incoming_flags |= DEDUP_SETUP_COMPRESS;
    incoming_memory(memory);
    channels_start();
    for (intptr_t i = 0; i < FETCHERS; i++) {
        pthread_create(&threads[i], NULL, fetcher, (void *)i);
    }
    end = g_get_monotonic_time() + seconds * 1e6;
    do {
        migrate(&s);
        n++;
    } while (g_get_monotonic_time() < end && !errors);

    printf("# %lu migrations\n", n);
    qatomic_set(&quit, true);
    pthread_mutex_lock(&lock);
    pthread_cond_broadcast(&cond);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < FETCHERS; i++) {
        pthread_join(threads[i], NULL);
    }
    channels_end();
    g_ptr_array_unref(old_fetches);
    if (errors && !broken) {
        printf("not ok incoming: stress\n");
    } else if (errors || !broken) {
        printf("ok incoming: %s\n", errors ? "stress sees corruption"
                                           : "stress");
    } else {
        printf("not ok incoming: stress sees corruption\n");
    }
    return !errors == broken;
}
