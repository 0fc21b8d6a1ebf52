/*
 * Compression against the link
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "compress-rate.h"

#define TEST_GROUP "compress-rate"

#define MS          1000000ll
#define BATCH       (64 * 4096)
#define GBIT        (125 * 1000 * 1000ull)

static DedupCompressRate r;
static int64_t now;
static uint64_t sent;

/* A window: batches of so many ms each, then @bytes on the link */
static void window(unsigned batches, double ms, unsigned skipped,
                   uint64_t bytes)
{
    for (unsigned i = 0; i < batches; i++) {
        dedup_compress_rate_batch(&r, 64, BATCH, BATCH / 5, ms * MS);
    }
    for (unsigned i = 0; i < skipped; i++) {
        dedup_compress_rate_skipped(&r);
    }
    now += 25 * MS;
    sent += bytes;
    dedup_compress_rate_window(&r, now, sent, 1);
}

static void probes(unsigned n, unsigned busy)
{
    for (unsigned i = 0; i < n; i++) {
        dedup_compress_rate_probe(&r, i < busy);
    }
}

/* A window in which the link is busy, with @batches or @bytes */
static void busy(unsigned batches, uint64_t bytes)
{
    probes(100, 50);
    window(batches, 0.1, 0, bytes);
}

/* On, behind the first window with pages, and that of warming up */
static void begin(int level)
{
    now = 7 * MS;
    sent = 0;
    dedup_compress_rate_init(&r, now, level, GBIT, 1);
    CHECK(r.on && r.level == (level ?: DEDUP_COMPRESS_LEVEL_LOW));
    busy(0, 0);
    busy(0, 0);
    CHECK(r.on);
}

static void the_limit_tells(void)
{
    dedup_compress_rate_init(&r, 0, 0, 2 * GBIT, 1);
    CHECK(!r.on);                       /* 250 MB/s, and 300 a thread */
    dedup_compress_rate_init(&r, 0, 0, 2 * GBIT, 2);
    CHECK(r.on);
    dedup_compress_rate_init(&r, 0, 0, UINT64_MAX / 2, 16);
    CHECK(!r.on);
}

static void off_until_the_link_is_known(void)
{
    now = 7 * MS;
    sent = 0;
    dedup_compress_rate_init(&r, now, 0, 0, 1);
    CHECK(!r.on);
    now += 1000 * MS;                   /* the setup is no window */
    busy(0, GBIT / 1000);
    CHECK(!r.on);
    busy(0, 2 * GBIT / 40);             /* as fast as a thread, nearly */
    CHECK(!r.on);
    probes(100, 49);
    window(0, 0, 0, GBIT / 40);
    CHECK(!r.on);
    busy(0, GBIT / 40);
    CHECK(r.on);
}

static void off_when_the_link_is_faster(void)
{
    begin(0);
    window(10, 0.5, 640, 0);            /* half: it pays */
    CHECK(r.on);
    window(10, 0.5, 641, 0);
    CHECK(!r.on && !r.trial);
}

static void few_pages_tell_nothing(void)
{
    begin(0);
    window(0, 0, 255, 0);
    CHECK(r.on);
    now += 1;
    dedup_compress_rate_window(&r, now, sent, 1);   /* no window yet */
    CHECK(r.on);
}

static void warming_up_tells_nothing(void)
{
    now = 7 * MS;
    sent = 0;
    dedup_compress_rate_init(&r, now, 0, GBIT, 1);
    for (int i = 0; i < 2; i++) {
        window(0, 0, 1000, 0);
        CHECK(r.on);
    }
    window(0, 0, 1000, 0);
    CHECK(!r.on);
}

static void a_trial_that_compression_wins(void)
{
    begin(0);
    busy(40, 40 * BATCH / 5);           /* 419 MB/s get through */
    CHECK(!r.on && r.trial);
    busy(0, GBIT / 40);                 /* 125 MB/s without */
    CHECK(r.on && !r.trial);
    /* Not again for 125 ms, for 250 the next time, for 16 s at last */
    for (unsigned most = 5, n = 0; n < 20; n++) {
        for (unsigned i = 0; i < most; i++) {
            busy(40, 40 * BATCH / 5);
            CHECK(r.on == (i + 1 < most));
        }
        busy(0, GBIT / 40);
        CHECK(r.on);
        most = most < 320 ? 2 * most : 640;
    }
}

static void a_trial_that_it_loses(void)
{
    begin(0);
    busy(40, 40 * BATCH / 5);
    busy(0, 4 * GBIT / 40);             /* 500 MB/s: the destination's rate */
    CHECK(!r.on && !r.trial);
    /* Or so little is won that it is not worth the processors */
    begin(0);
    busy(40, 40 * BATCH / 5);
    busy(0, 3.1 * GBIT / 40);
    CHECK(!r.on);
    /* Or the link idles */
    begin(0);
    busy(40, 40 * BATCH / 5);
    probes(100, 49);
    window(0, 0, 0, GBIT / 40);
    CHECK(!r.on && !r.trial);
}

static void a_trial_waits_for_evidence(void)
{
    begin(0);
    busy(40, 40 * BATCH / 5);
    probes(7, 7);
    window(0, 0, 0, GBIT / 400);
    CHECK(!r.on && r.trial);
    probes(1, 1);                       /* the eighth, of the same window */
    window(0, 0, 0, GBIT / 40);
    CHECK(r.on && !r.trial);
}

static void none_without_a_busy_link(void)
{
    begin(0);
    for (int i = 0; i < 100; i++) {
        probes(100, 49);
        window(40, 0.1, 0, 40 * BATCH / 5);
        CHECK(r.on);
        probes(7, 7);                   /* or of a slow one */
        window(7, 0.1, 0, 7 * BATCH / 5);
        CHECK(r.on);
    }
}

static void on_again(void)
{
    begin(0);
    window(10, 0.5, 1000, 0);
    CHECK(!r.on);
    for (int i = 0; i < 4; i++) {       /* 125 ms pass first */
        busy(0, GBIT / 40);
        CHECK(!r.on);
    }
    probes(100, 49);
    window(0, 0, 0, GBIT / 40);
    CHECK(!r.on);
    busy(0, 5 * GBIT / 40);             /* busy, and faster than a thread */
    CHECK(!r.on);
    busy(0, GBIT / 40);
    CHECK(r.on);
    /* It has to show that more gets through; the next time it takes longer */
    busy(40, 40 * BATCH / 5);           /* warming up */
    CHECK(r.on);
    busy(3, 3 * BATCH / 5);
    CHECK(!r.on && !r.trial);
    for (int i = 0; i < 9; i++) {
        busy(0, GBIT / 40);
        CHECK(!r.on);
    }
    busy(0, GBIT / 40);
    CHECK(r.on);
    busy(0, 0);
    window(8, 0.1, 512, 0);             /* half of them as they were */
    CHECK(r.on && !r.trial);
    busy(3, 3 * BATCH / 5);             /* that is decided, for half a second */
    CHECK(r.on && !r.trial);
}

/* Then the link is not busy, and no page has to go without */
static void off_if_processors_are_short(void)
{
    for (unsigned batches = 1; batches <= 16; batches++) {
        now = 7 * MS;
        sent = 0;
        dedup_compress_rate_init(&r, now, 0, 0, 1);
        busy(0, 0);
        busy(0, GBIT / 40);
        window(0, 0, 0, 0);
        window(batches, 1, 0, batches * BATCH / 5);
        /* If it is less than half of before, there were other pages; from
         * 1.1 times as much on it pays */
        CHECK(r.on == (batches < 6 || batches > 13));
    }
}

static void levels(void)
{
    begin(0);
    window(4, 0.25, 0, 0);              /* 4 % of the time */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_HIGH);
    window(20, 0.5, 0, 0);              /* 40 % */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_HIGH);
    window(40, 0.5, 0, 0);              /* 80 % */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_LOW);
    window(10, 0.75, 0, 0);             /* 30 % */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_LOW);
    begin(7);
    window(4, 0.25, 0, 0);
    CHECK(r.level == 7);
    window(40, 0.5, 0, 0);
    CHECK(r.level == 7);
}

static void measured(void)
{
    begin(0);
    for (int i = 0; i < 100; i++) {
        dedup_compress_rate_batch(&r, 64, BATCH, BATCH / 5, MS);
    }
    CHECK(r.ratio > 0.199 && r.ratio < 0.201);
    CHECK(r.speed > 262e6 && r.speed < 263e6);
    /* What did not compress says nothing about what does */
    dedup_compress_rate_batch(&r, 64, BATCH, 0, MS / 100);
    CHECK(r.ratio < 0.201 && r.speed < 263e6);
}

static void pages(void)
{
    begin(0);                           /* a page takes 1 KiB */
    CHECK(dedup_compress_rate_pages(&r, 1 << 20, 0, 64) == 64);
    CHECK(dedup_compress_rate_pages(&r, 40 << 10, 0, 64) == 40);
    CHECK(dedup_compress_rate_pages(&r, 40 << 10, 30, 64) == 10);
    CHECK(dedup_compress_rate_pages(&r, 40 << 10, 50, 64) == 1);
    CHECK(dedup_compress_rate_pages(&r, 0, 0, 64) == 1);
}

int main(void)
{
    RUN(the_limit_tells);
    RUN(off_until_the_link_is_known);
    RUN(off_when_the_link_is_faster);
    RUN(few_pages_tell_nothing);
    RUN(warming_up_tells_nothing);
    RUN(a_trial_that_compression_wins);
    RUN(a_trial_that_it_loses);
    RUN(a_trial_waits_for_evidence);
    RUN(none_without_a_busy_link);
    RUN(on_again);
    RUN(off_if_processors_are_short);
    RUN(levels);
    RUN(measured);
    RUN(pages);
    return test_status;
}
