/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "test.h"
#include "listing.h"
#include "request.h"

#include <sys/mman.h>
#include <unistd.h>

#define TEST_GROUP "listing"

static struct listing l;
static uint8_t out[1 << 20];
static size_t length;

static void begin(uint64_t max)
{
    static const struct listing_disk disk = {
        .size = 1 << 30, .sector = 512, .name = "vda", .serial = "s",
    };

    listing_begin(&l, memfd_create("listing", 0), max, 4096, 5);
    listing_put_disk(&l, &disk);
}

static void end(void)
{
    static const struct listing_figures figures;

    listing_end(&l, LISTING_WHOLE, LISTING_METHOD_PAGES, &figures, 0, 0, 0,
                0);
    length = pread(l.fd, out, sizeof(out), 0);
    close(l.fd);
}

static bool add(uint64_t page, uint64_t offset, uint64_t pages)
{
    struct listing_extent e = {
        .gpa = page * 4096, .offset = offset, .pages = pages,
    };

    return listing_add(&l, &e);
}

static uint64_t le(const uint8_t *p, int bytes)
{
    uint64_t value = 0;

    while (bytes--) {
        value = value << 8 | p[bytes];
    }
    return value;
}

/* The payload of the frame of that type, or NULL */
static const uint8_t *frame(uint16_t wanted, long *size)
{
    uint32_t number = 0;

    for (size_t at = 0; at + 16 <= length; at += 16 + *size, number++) {
        uint16_t type;

        *size = listing_parse_header(out + at, &type);
        if (*size < 0 || le(out + at + 12, 4) != number) {
            return NULL;
        }
        if (type == wanted) {
            return out + at + 16;
        }
    }
    return NULL;
}

static void frames(void)
{
    const uint8_t *p;
    long size;

    begin(100);
    CHECK(add(1, 512, 3));
    listing_skip(&l, LISTING_WHY_NETWORK, 7, "nfs\n%d", 4);
    listing_skip(&l, LISTING_WHY_NETWORK, 3, "nfs\n%d", 4);
    end();
    p = frame(LISTING_BEGIN, &size);
    CHECK(p && size == 64 && le(p, 4) == 1 && le(p + 4, 4) == 4096 &&
          le(p + 8, 8) == 5);
    p = frame(LISTING_DISK, &size);
    CHECK(p && size == 256 && le(p + 8, 8) == 1 << 30 &&
          !strcmp((char *)p + 64, "vda") && !strcmp((char *)p + 96, "s"));
    p = frame(LISTING_EXTENTS, &size);
    CHECK(p && size == 16 && le(p, 8) == (0x1000 | 2) && le(p + 8, 8) == 512);
    p = frame(LISTING_SKIPPED, &size);
    CHECK(p && size == 16 + 5 && le(p, 4) == LISTING_WHY_NETWORK &&
          le(p + 8, 8) == 10 && !memcmp(p + 16, "nfs?4", 5));
    p = frame(LISTING_END, &size);
    CHECK(p && size == 160 && le(p + 8, 8) == 1 && le(p + 16, 8) == 3);
}

static void joining(void)
{
    const uint8_t *p;
    long size;

    begin(100);
    CHECK(add(1, 8192, 1) && add(2, 12288, 1));         /* join */
    CHECK(add(3, 8192, 1));                             /* elsewhere */
    CHECK(add(5, 12288, 1));                            /* a gap in memory */
    CHECK(add(8, 0, LISTING_MAX_EXTENT_PAGES + 1));     /* too long for one */
    end();
    p = frame(LISTING_EXTENTS, &size);
    CHECK(p && size == 5 * 16);
    CHECK(le(p, 8) == (0x1000 | 1) && le(p + 48, 8) == (0x8000 | 4095));
    CHECK(le(p + 64, 8) == 0x8000 + 4096 * 4096);
}

static void refused(void)
{
    begin(3);
    CHECK(!add(1, 511, 1));
    CHECK(!add(1, 0, 0));
    CHECK(!add(1, (1 << 30) - 4095, 1));
    CHECK(!add(1, (1 << 30) - 4096, 2));
    CHECK(!add(UINT64_MAX >> 13, 0, 1));
    CHECK(add(5, 0, 2));
    CHECK(!add(6, 0, 1) && !add(1, 0, 1));              /* not ascending */
    CHECK(add(8, 0, 1) && add(10, 0, 1));
    CHECK(!add(12, 0, 1));                              /* as many as may be */
    end();
    CHECK(l.extents == 3 && l.data_pages == 4);
}

static void many(void)
{
    const uint8_t *p;
    long size;

    begin(LISTING_MAX_EXTENTS);
    for (int i = 0; i < LISTING_MAX_FRAME_EXTENTS + 1; i++) {
        CHECK(add(2 * i, 0, 1));
    }
    for (int i = 0; i < LISTING_MAX_SKIPPED + 5; i++) {
        listing_skip(&l, LISTING_WHY_OTHER, 1, "%d", i);
    }
    end();
    p = frame(LISTING_EXTENTS, &size);
    CHECK(p && size == LISTING_MAX_PAYLOAD);
    CHECK(l.skips.count == LISTING_MAX_SKIPPED);
    CHECK(frame(LISTING_END, &size));
}

static void nobody_reads(void)
{
    begin(100);
    close(l.fd);
    l.fd = -1;
    CHECK(add(1, 0, 1));
    listing_end(&l, LISTING_WHOLE, LISTING_METHOD_PAGES,
                &(struct listing_figures) { 0 }, 0, 0, 0, 0);
    CHECK(l.broken && !add(2, 0, 1));
}

static void requests(void)
{
    struct listing_request r;
    uint8_t p[LISTING_REQUEST_LEN] = { 1 };

    p[5] = 4;                   /* 1024 ms */
    p[8] = 9;
    p[18] = 1;                  /* 64 MiB */
    p[20] = 1;
    CHECK(!listing_parse_request(p, sizeof(p), &r));
    CHECK(r.nonce == 9 && r.limit_ms == 1024 && r.memory_kib == 65536 &&
          r.extents == 1);
    CHECK(listing_parse_request(p, sizeof(p) - 1, &r));
    for (unsigned i = 0; i < sizeof(p); i++) {
        uint8_t kept = p[i];

        /* Nothing but the nonce may be anything. */
        p[i] = 0xff;
        CHECK(i / 8 == 1 || i == 4 || i == 5 || i / 4 == 4 || i == 20 ||
              i == 21 || i == 22 || listing_parse_request(p, sizeof(p), &r));
        p[i] = kept;
    }
    p[8] = 0;
    CHECK(listing_parse_request(p, sizeof(p), &r));
}

/* A channel may hold anything before a request; it may come in pieces. */
static void feeding(void)
{
    struct request_input in = { .used = 0 };
    struct listing_request r;
    uint8_t stream[400];
    size_t used = 0;
    int found = 0;

    for (int n = 0; n < 3; n++) {
        uint8_t *p = stream + used + 7 * n;

        memset(stream + used, 'N', 7 * n);
        memset(p, 0, 80);
        memcpy(p, "NPCL\x10\0\0\0\x40", 9);
        p[16] = 1;
        p[20] = 1;
        p[24] = n + 1;
        p[34] = 1;
        p[36] = n == 1 ? 0 : 1;         /* the second is malformed */
        used += 7 * n + 80;
    }
    for (size_t i = 0; i < used; i++) {
        if (request_feed(&in, stream + i, 1, &r)) {
            CHECK(r.nonce == (found ? 3 : 1));
            found++;
        }
    }
    CHECK(found == 2);
    in.used = 0;
    CHECK(request_feed(&in, stream, used, &r) && r.nonce == 3);
    CHECK(!request_feed(&in, stream, 79, &r));
}

int main(void)
{
    RUN(frames);
    RUN(joining);
    RUN(refused);
    RUN(many);
    RUN(nobody_reads);
    RUN(requests);
    RUN(feeding);
    return test_status;
}
