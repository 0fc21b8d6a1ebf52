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
    now += 50 * MS;
    sent += bytes;
    dedup_compress_rate_window(&r, now, sent, 1);
}

static void probes(unsigned n, unsigned busy)
{
    for (unsigned i = 0; i < n; i++) {
        dedup_compress_rate_probe(&r, i < busy);
    }
}

static void begin(int level)
{
    now = 7 * MS;
    sent = 0;
    dedup_compress_rate_init(&r, now, level);
}

static void off_when_the_link_is_faster(void)
{
    begin(0);
    CHECK(r.on && r.level == DEDUP_COMPRESS_LEVEL_LOW);
    window(10, 0.5, 640, 0);            /* half: it pays */
    CHECK(r.on);
    window(10, 0.5, 641, 0);
    CHECK(!r.on);
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

static void on_again(void)
{
    begin(0);
    window(10, 0.5, 1000, 0);
    CHECK(!r.on);
    /* A second passes first */
    for (int i = 0; i < 19; i++) {
        probes(100, 100);
        window(0, 0, 0, GBIT / 20);
        CHECK(!r.on);
    }
    probes(100, 50);                    /* the link idles half the time */
    window(0, 0, 0, GBIT / 20);
    CHECK(!r.on);
    probes(100, 100);                   /* busy, and faster than a thread */
    window(0, 0, 0, 5 * GBIT / 20);
    CHECK(!r.on);
    probes(7, 7);
    window(0, 0, 0, GBIT / 20);
    CHECK(!r.on);
    probes(100, 100);
    window(0, 0, 0, GBIT / 20);
    CHECK(r.on);
    /* The next time it takes longer */
    window(10, 0.5, 1000, 0);
    CHECK(!r.on);
    for (int i = 0; i < 39; i++) {
        probes(100, 100);
        window(0, 0, 0, GBIT / 20);
        CHECK(!r.on);
    }
    probes(100, 100);
    window(0, 0, 0, GBIT / 20);
    CHECK(r.on);
}

static void levels(void)
{
    begin(0);
    window(4, 0.5, 0, 0);               /* 4 % of the time */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_HIGH);
    window(20, 1, 0, 0);                /* 40 % */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_HIGH);
    window(40, 1, 0, 0);                /* 80 % */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_LOW);
    window(20, 0.75, 0, 0);             /* 30 % */
    CHECK(r.level == DEDUP_COMPRESS_LEVEL_LOW);
    begin(7);
    window(4, 0.5, 0, 0);
    CHECK(r.level == 7);
    window(40, 1, 0, 0);
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
    RUN(off_when_the_link_is_faster);
    RUN(few_pages_tell_nothing);
    RUN(on_again);
    RUN(levels);
    RUN(measured);
    RUN(pages);
    return test_status;
}
