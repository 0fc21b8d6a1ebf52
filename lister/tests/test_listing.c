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

static void begin_as(uint64_t max, bool compact)
{
    static const struct listing_disk disk = {
        .size = 1 << 30, .sector = 512, .name = "vda", .serial = "s",
    };

    listing_begin(&l, memfd_create("listing", 0), max, 4096, 5,
                  compact);
    listing_put_disk(&l, &disk);
}

static void begin(uint64_t max)
{
    begin_as(max, false);
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
        uint32_t has;
        uint16_t type;

        *size = listing_parse_header(out + at, &type, &has);
        if (*size < 0 || has != number) {
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

static uint64_t varint(const uint8_t **p)
{
    uint64_t value = 0;
    unsigned shift = 0;

    do {
        value |= (uint64_t)(**p & 0x7f) << shift;
        shift += 7;
    } while (*(*p)++ & 0x80);
    return value;
}

/* Reads a COMPACT payload into sums that tell extents apart; their number */
static unsigned read_compact(const uint8_t *p, long size, uint64_t *sum)
{
    const uint8_t *end = p + size;
    uint64_t base = le(p, 8);
    unsigned all = 0;

    for (p += 8; p < end;) {
        unsigned disk = p[0], kind = p[1], n = le(p + 2, 2);
        uint64_t offset = le(p + 8, 8);
        const uint8_t *at = p + 16, *lengths;

        p = at + 2 * n;
        lengths = p;
        for (unsigned i = 0; i < n; i++) {
            varint(&lengths);
        }
        for (unsigned i = 0; i < n; i++) {
            uint64_t delta = varint(&p), pages = 1;

            if (delta & 1) {
                pages = 2 + varint(&lengths);
            }
            offset += delta / 2 * 4096;
            *sum += (base + le(at + 2 * i, 2) * 4096) * 3 +
                    offset * 7 + pages * 1000003 + disk * 11 + kind * 13;
        }
        p = lengths;
        all += n;
    }
    return p == end ? all : 0;
}

/* All COMPACT frames of the listing; UINT32_MAX: there are others */
static unsigned read_all_compact(uint64_t *sum, unsigned *frames)
{
    unsigned all = 0;
    long size;

    *sum = *frames = 0;
    for (size_t at = 0; at + 16 <= length; at += 16 + size) {
        uint32_t number;
        uint16_t type;

        size = listing_parse_header(out + at, &type, &number);
        if (type == LISTING_EXTENTS) {
            return UINT32_MAX;
        }
        if (type == LISTING_COMPACT) {
            all += read_compact(out + at + 16, size, sum);
            ++*frames;
        }
    }
    return all;
}

/* Scattered over the disk, as in a machine that has been in use */
static void compact(void)
{
    uint64_t wanted = 0, sum, page = 7;
    unsigned frames, made = 0;

    begin_as(LISTING_MAX_EXTENTS, true);
    for (unsigned i = 0; i < 30000; i++) {
        struct listing_extent e = {
            .gpa = page * 4096, .pages = 1 + below(3),
            .offset = below((1 << 30) / 4096 - 4) * 4096,
        };

        CHECK(listing_add(&l, &e));
        wanted += e.gpa * 3 + e.offset * 7 + e.pages * 1000003;
        /* Never adjoining */
        page += e.pages + 1 + below(2);
        made++;
    }
    end();
    CHECK(length < sizeof(out));
    CHECK(read_all_compact(&sum, &frames) == made && sum == wanted);
    CHECK(length / made <= 5);
    CHECK(l.extents == made && frame(LISTING_END, &(long) { 0 }));
}

/* As many groups as there can be, and the longest varints */
static void compact_extremes(void)
{
    static const struct listing_disk disk = {
        .size = INT64_MAX - 4095, .sector = 512, .name = "x",
    };
    uint64_t wanted = 0, sum;
    unsigned frames, made = 0;

    begin_as(LISTING_MAX_EXTENTS, true);
    while (l.disks < LISTING_MAX_DISKS) {
        listing_put_disk(&l, &disk);
    }
    for (unsigned i = 0; i < 2 * LISTING_MAX_COMPACT_EXTENTS; i++) {
        struct listing_extent e = {
            .gpa = (uint64_t)i * 2 * 4096, .pages = 1 + (i & 1),
            .disk = 1 + i % 63, .kind = i / 63 % 2,
            .offset = (uint64_t)(i / 126 % 8) * 512 +
                      (i / 1008 % 4 * (1ull << 60)),
        };

        /* Two pages and the next one adjoin in memory, not on disk */
        CHECK(listing_add(&l, &e));
        wanted += e.gpa * 3 + e.offset * 7 + e.pages * 1000003 +
                  e.disk * 11 + e.kind * 13;
        made++;
    }
    end();
    CHECK(read_all_compact(&sum, &frames) == made && sum == wanted);
    CHECK(frames == 2);
}

/* A frame spans no more than the 2 bytes of a place can tell */
static void compact_window(void)
{
    uint64_t sum;
    unsigned frames;

    begin_as(100, true);
    CHECK(add(1, 0, 1) && add(65536, 0, 2));    /* the last one of a frame */
    CHECK(add(65538, 0, 1));
    end();
    CHECK(read_all_compact(&sum, &frames) == 3 && frames == 2);
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
    CHECK(found == 2 && !r.compact);
    stream[12] = 1;
    in.used = 0;
    CHECK(request_feed(&in, stream, 80, &r) && r.compact);
    in.used = 0;
    CHECK(request_feed(&in, stream, used, &r) && r.nonce == 3);
    CHECK(!request_feed(&in, stream, 79, &r));
}

int main(void)
{
    RUN(frames);
    RUN(joining);
    RUN(compact);
    RUN(compact_extremes);
    RUN(compact_window);
    RUN(refused);
    RUN(many);
    RUN(nobody_reads);
    RUN(requests);
    RUN(feeding);
    return test_status;
}
