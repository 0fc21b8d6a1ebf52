/*
 * Batches: their format, and what is refused
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "compress-batch.h"
#include "wire.h"

#define TEST_GROUP "compress"

static uint8_t raw[DEDUP_BATCH_RAW], back[DEDUP_BATCH_RAW];
static uint8_t frame[DEDUP_BATCH_RAW], payload[DEDUP_BATCH_PAYLOAD + 1];
static ZSTD_CCtx *cctx;
static ZSTD_DCtx *dctx;

/* @noise of 256 bytes are random */
static void fill(unsigned noise)
{
    for (size_t i = 0; i < sizeof(raw); i++) {
        raw[i] = i % 256 < noise ? rnd() : 0;
    }
}

static size_t pack(DedupBatch *b, const void *data, size_t len)
{
    size_t n;

    b->len = len;
    n = dedup_batch_header(payload, b);
    memcpy(payload + n, data, len);
    return n + len;
}

static void round_trip(void)
{
    for (unsigned n = 1; n <= DEDUP_BATCH_PAGES; n++) {
        DedupBatch b = { .block = n * 1000 % 65536, .n = n }, c;
        uint64_t page = below(1ull << 40);
        size_t len;

        fill(64);
        for (unsigned i = 0; i < n; i++) {
            b.pages[i] = page;
            page += below(3) ? 1 : below(1 << 20) + 1;
        }
        b.len = dedup_batch_deflate(cctx, 1 + n % 3, n % 2, raw, n, frame);
        CHECK(b.len && b.len < n * 4096 / 2);
        len = pack(&b, frame, b.len);
        CHECK(dedup_batch_decode(payload, len, &c));
        CHECK(c.block == b.block && c.n == n && c.len == b.len);
        CHECK(!memcmp(c.pages, b.pages, n * sizeof(b.pages[0])));
        memset(back, 1, sizeof(back));
        CHECK(!dedup_batch_inflate(dctx, &c, back));
        CHECK(!memcmp(raw, back, n * 4096));
        CHECK(n == DEDUP_BATCH_PAGES || back[n * 4096] == 1);
    }
}

static void sizes(void)
{
    DedupBatch b = { .block = 65535, .n = DEDUP_BATCH_PAGES };

    /* The largest header there can be */
    for (unsigned i = 0; i < b.n; i++) {
        b.pages[i] = UINT64_MAX - 2 * DEDUP_BATCH_PAGES + i;
    }
    b.len = DEDUP_BATCH_RAW - 1;
    CHECK(dedup_batch_header(payload, &b) <= DEDUP_BATCH_HEADER);
    /* Equal pages are nearly free */
    for (unsigned i = 0; i < DEDUP_BATCH_PAGES; i++) {
        for (unsigned k = 0; k < 4096; k++) {
            raw[i * 4096 + k] = i ? raw[k] : rnd();
        }
    }
    b.len = dedup_batch_deflate(cctx, 1, false, raw, b.n, frame);
    CHECK(b.len && b.len < 2 * 4096);
}

static void incompressible(void)
{
    fill(256);
    for (unsigned n = 1; n <= DEDUP_BATCH_PAGES; n++) {
        CHECK(!dedup_batch_deflate(cctx, 1, n % 2, raw, n, frame));
    }
    /* An eighth is not worth it */
    fill(240);
    CHECK(!dedup_batch_deflate(cctx, 1, false, raw, 64, frame));
    fill(128);
    CHECK(dedup_batch_deflate(cctx, 1, true, raw, 64, frame));
}

static void malformed(void)
{
    DedupBatch b = { .block = 0, .n = 3, .pages = { 5, 6, 9 } }, c;
    size_t len, n;

    fill(32);
    n = dedup_batch_deflate(cctx, 1, false, raw, 3, frame);
    len = pack(&b, frame, n);
    CHECK(dedup_batch_decode(payload, len, &c));
    for (size_t cut = 0; cut < len; cut++) {
        CHECK(!dedup_batch_decode(payload, cut, &c));
    }
    CHECK(!dedup_batch_decode(payload, len + 1, &c));
    payload[0] = 2;                                 /* codec */
    CHECK(!dedup_batch_decode(payload, len, &c));
    payload[0] = 0;
    CHECK(!dedup_batch_decode(payload, len, &c));
    len = pack(&b, frame, n);
    payload[3] = 0;                                 /* pages */
    CHECK(!dedup_batch_decode(payload, len, &c));
    payload[3] = DEDUP_BATCH_PAGES + 1;
    CHECK(!dedup_batch_decode(payload, len, &c));
    len = pack(&b, raw, 3 * 4096);                  /* no gain */
    CHECK(!dedup_batch_decode(payload, len, &c));
    len = pack(&b, raw, 3 * 4096 - 1);
    CHECK(dedup_batch_decode(payload, len, &c));
    len = pack(&b, raw, 0);
    CHECK(!dedup_batch_decode(payload, len, &c));
    /* Page numbers that run over */
    b.pages[0] = UINT64_MAX - 1;
    b.pages[1] = 5;
    b.pages[2] = 6;
    len = pack(&b, frame, n);
    CHECK(!dedup_batch_decode(payload, len, &c));
    b = (DedupBatch) { .n = 1, .pages = { UINT64_MAX } };
    len = pack(&b, frame, n);
    CHECK(!dedup_batch_decode(payload, len, &c));
    b.n = DEDUP_BATCH_PAGES;
    CHECK(!dedup_batch_decode(payload, DEDUP_BATCH_PAYLOAD + 1, &c));
}

static const char *inflated(unsigned pages, const uint8_t *data, size_t len)
{
    DedupBatch b = { .n = pages, .frame = data, .len = len };

    return dedup_batch_inflate(dctx, &b, back);
}

static void hostile_frames(void)
{
    static const uint8_t skippable[] = { 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0 };
    static const uint8_t legacy[] = { 0x27, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0 };
    static const uint8_t *zeros;
    size_t n, m;

    fill(32);
    n = dedup_batch_deflate(cctx, 1, false, raw, 8, frame);
    CHECK(n && !inflated(8, frame, n));
    CHECK(inflated(7, frame, n));                   /* more than pages */
    CHECK(inflated(9, frame, n));                   /* fewer */
    CHECK(inflated(8, frame, n - 1));
    memcpy(payload, frame, n);
    payload[n] = 0;
    CHECK(inflated(8, payload, n + 1));
    /* Two frames that hold the pages together */
    m = dedup_batch_deflate(cctx, 1, false, raw, 4, payload);
    CHECK(m && !inflated(4, payload, m));
    memmove(payload + m, payload, m);
    CHECK(inflated(8, payload, 2 * m));
    /* What is no frame, or none of today's */
    memcpy(payload, frame, n);
    memcpy(payload + n, skippable, sizeof(skippable));
    CHECK(inflated(8, payload, n + sizeof(skippable)));
    CHECK(inflated(8, skippable, sizeof(skippable)));
    CHECK(inflated(8, legacy, sizeof(legacy)));
    for (unsigned len = 1; len < 4; len++) {
        CHECK(inflated(1, frame, len));
    }
    /* A bomb: 256 MiB of zeros in a few kilobytes */
    zeros = calloc(1, 256 << 20);
    m = ZSTD_compressCCtx(cctx, payload, sizeof(payload), zeros, 256 << 20,
                          1);
    free((void *)zeros);
    CHECK(!ZSTD_isError(m) && inflated(64, payload, m));
    /* Any damaged byte: refused, or right as far as its length goes */
    for (unsigned i = 0; i < 2000; i++) {
        memcpy(payload, frame, n);
        payload[below(n)] ^= 1 << below(8);
        inflated(8, payload, n);
    }
    CHECK(!inflated(8, frame, n) && !memcmp(raw, back, 8 * 4096));
}

int main(void)
{
    cctx = ZSTD_createCCtx();
    dctx = ZSTD_createDCtx();
    RUN(round_trip);
    RUN(sizes);
    RUN(incompressible);
    RUN(malformed);
    RUN(hostile_frames);
    ZSTD_freeCCtx(cctx);
    ZSTD_freeDCtx(dctx);
    return test_status;
}
