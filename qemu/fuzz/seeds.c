/*
 * Write what the fuzzers begin with, made by the encoder: seeds FOLDER
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "../tests/test.h"
#include "compress-batch.h"
#include "map-format.h"
#include "wire.h"

static const char *top;
static uint8_t buf[DEDUP_BATCH_PAYLOAD];

static void save(const char *target, unsigned n, size_t len)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", top, target);
    mkdir(path, 0777);
    snprintf(path, sizeof(path), "%s/%s/%u", top, target, n);
    f = fopen(path, "wb");
    if (!f || fwrite(buf, 1, len, f) != len || fclose(f)) {
        perror(path);
        exit(EXIT_FAILURE);
    }
}

static size_t records(uint8_t *p, unsigned n, uint64_t pages, uint32_t id)
{
    static DedupRecord recs[DEDUP_WIRE_MAX_BATCH];
    uint64_t page = below(pages), sector = below(1 << 20) * 8;

    memset(recs, 0, sizeof(recs));
    for (unsigned i = 0; i < n; i++) {
        recs[i].page = page++ % pages;
        recs[i].sector = sector;
        recs[i].disk = below(8) == 0;
        sector += 8;
        if (below(3) == 0) {
            page = below(pages);
            sector = below(1 << 20) * 8;
        }
    }
    return dedup_encode_records(p, id, recs, n);
}

static size_t hints(uint8_t *p, unsigned n, uint64_t *page)
{
    static DedupWireHint h[DEDUP_WIRE_MAX_BATCH];
    uint64_t sector = below(1 << 20) * 8;

    for (unsigned i = 0; i < n; i++) {
        h[i] = (DedupWireHint) { 0, below(8) == 0, (*page)++, sector,
                                 below(4) ? below(65535) + 1 : 0 };
        sector += 8;
        if (below(3) == 0) {
            *page += below(3);
            sector = below(1 << 20) * 8;
        }
    }
    return dedup_encode_hints(p, h, n);
}

static uint8_t *element(uint8_t *p, unsigned type, size_t len)
{
    dedup_put_be(p, type, 2);
    dedup_put_be(p + 2, len, 2);
    return p + 4 + len;
}

static size_t batch(uint8_t *p, unsigned n, uint64_t pages)
{
    static uint8_t raw[DEDUP_BATCH_RAW], frame[DEDUP_BATCH_RAW];
    DedupBatch b = { .n = n, .frame = frame };
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    size_t len;

    for (unsigned i = 0; i < n; i++) {
        b.pages[i] = i + pages - n;
    }
    for (size_t i = 0; i < sizeof(raw); i++) {
        raw[i] = below(4) ? 0 : below(256);
    }
    b.len = dedup_batch_deflate(ctx, 1, false, raw, n, frame);
    ZSTD_freeCCtx(ctx);
    if (!b.len) {
        return 0;
    }
    len = dedup_batch_header(p, &b);
    memcpy(p + len, frame, b.len);
    return len + b.len;
}

/* As tests/incoming.h has it */
static uint8_t *setup(uint8_t *at, unsigned flags)
{
    uint8_t *p = dedup_put_be(at + 4, DEDUP_WIRE_VERSION, 2);

    p = dedup_put_be(p, flags, 2);
    memset(p, 7, DEDUP_KEY_LEN);
    p = dedup_put_be(p + DEDUP_KEY_LEN, 0, 8);
    p = dedup_put_be(p, 0, 4);
    p = dedup_put_be(p, 2, 2);
    for (int i = 0; i < 2; i++) {
        *p++ = 3;
        memcpy(p, i ? "rom" : "ram", 3);
        p = dedup_put_be(p + 3, 64 * 4096, 8);
    }
    p = dedup_put_be(p, 2, 2);
    for (int i = 0; i < 2; i++) {
        *p++ = i;
        p = dedup_put_be(p, 5, 2);
        memcpy(p, i ? "/vdb0" : "/vda0", 5);
        p += 5;
    }
    return element(at, DEDUP_ELEMENT_SETUP, p - at - 4);
}

static uint8_t *extents(uint8_t *at)
{
    unsigned n = below(5);
    uint8_t *p = dedup_put_be(at + 4, 0, 2);

    p = dedup_put_be(p, n, 2);
    while (n--) {
        DedupExtent e = { below(1000) * 4096, (below(100) + 1) * 4096,
                          below(1000) * 4096, 0, below(3) };

        p = dedup_put_extent(p, &e);
    }
    return element(at, DEDUP_ELEMENT_EXTENTS, p - at - 4);
}

static void put_le(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (; bytes--; v >>= 8) {
        *p++ = v;
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: seeds FOLDER\n");
        return 2;
    }
    top = argv[1];
    mkdir(top, 0777);
    test_rnd = 1;
    for (unsigned i = 0; i < 12; i++) {
        DedupResult res[200];
        unsigned done, n;
        uint32_t id = 1;
        uint8_t *p;
        size_t len;

        uint64_t page = 0;

        save("fuzz_records", i, records(buf, 1 << i % 8, 1 << 20, i + 1));
        save("fuzz_hints", i, hints(buf, 1 << i % 8, &page));

        for (n = 0; n < 18 * i; n++) {
            id += below(3) ? 1 : below(5000) + 1;
            res[n] = (DedupResult) { id, below(4) };
        }
        len = dedup_encode_answers(buf, DEDUP_WIRE_MAX_MESSAGE, i, 1000, res,
                                   n, &done);
        memmove(buf, buf + 1, len - 1);
        save("fuzz_answers", i, len - 1);

        save("fuzz_compress", i, batch(buf, i + 1, 1 << 20));

        p = extents(setup(buf, i % 3 == 0 ? 3 : 1));
        dedup_put_be(p + 4, 1, 4);
        p = element(p, DEDUP_ELEMENT_EPOCH, 4);
        id = 1;
        for (n = 0; n < i; n++) {
            unsigned k = below(8) + 1;

            p = element(p, DEDUP_ELEMENT_RECORDS,
                        records(p + 4, k, 64, id));
            id += k;
            p[4] = below(256);
            p = element(p, 16 + below(3), 1);
            if (i % 3 == 0) {
                p = element(p, DEDUP_ELEMENT_BATCH, batch(p + 4, 3, 64));
                p = element(p, 21, 0);
            }
        }
        memcpy(p + 4, "\2\5/vda0\5/vdb0", 13);
        p = element(p, DEDUP_ELEMENT_HINT_DISKS, 13);
        page = 0;
        for (n = 0; n < i % 4; n++) {
            p = element(p, DEDUP_ELEMENT_HINTS, hints(p + 4, 5, &page));
        }
        p = element(p, 19 + i % 2, 0);
        save("fuzz_incoming", i, p - buf);

        memset(buf, 0, DEDUP_MAP_HEADER_LEN);
        memcpy(buf, DEDUP_MAP_MAGIC, 8);
        put_le(buf + 8, DEDUP_MAP_VERSION, 4);
        put_le(buf + 12, DEDUP_MAP_HEADER_LEN, 4);
        put_le(buf + 16, i + 1, 4);
        put_le(buf + 24, i, 8);
        p = buf + DEDUP_MAP_HEADER_LEN;
        for (n = 0; n < i; n++, p += DEDUP_MAP_EXTENT_LEN) {
            put_le(p, n << 20, 8);
            put_le(p + 8, below(1 << 30) * 512, 8);
            put_le(p + 16, below(256) + 1, 4);
            put_le(p + 20, below(i + 1), 4);
        }
        save("fuzz_map", i, p - buf);
    }
    return 0;
}
