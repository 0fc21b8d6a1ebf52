/*
 * External map: bounds of the header and of each extent
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "map-format.h"

#define TEST_GROUP "map-format"

static void put_le(uint8_t *p, uint64_t v, unsigned bytes)
{
    while (bytes--) {
        *p++ = v;
        v >>= 8;
    }
}

static void make_header(uint8_t *h, uint64_t disks, uint64_t extents)
{
    memset(h, 0, DEDUP_MAP_HEADER_LEN);
    memcpy(h, DEDUP_MAP_MAGIC, 8);
    put_le(h + 8, 1, 4);
    put_le(h + 12, 64, 4);
    put_le(h + 16, disks, 4);
    put_le(h + 24, extents, 8);
}

static const char *parse_header(const uint8_t *h)
{
    uint64_t extents;
    uint32_t disks;

    return dedup_map_parse_header(h, &disks, &extents);
}

static void header(void)
{
    uint8_t h[DEDUP_MAP_HEADER_LEN];
    uint64_t extents;
    uint32_t disks;

    make_header(h, 3, 1 << 24);
    CHECK(!dedup_map_parse_header(h, &disks, &extents));
    CHECK(disks == 3 && extents == 1 << 24);
    make_header(h, 1, 0);
    CHECK(!parse_header(h));
    make_header(h, 64, 0);
    CHECK(!parse_header(h));

    make_header(h, 0, 0);
    CHECK(strstr(parse_header(h), "number of disks"));
    make_header(h, 65, 0);
    CHECK(strstr(parse_header(h), "number of disks"));
    make_header(h, 1, (1 << 24) + 1);
    CHECK(strstr(parse_header(h), "too many extents"));
    make_header(h, 1, UINT64_MAX);
    CHECK(strstr(parse_header(h), "too many extents"));
}

/* No byte of the header but those of the counts may be anything else */
static void header_every_byte(void)
{
    for (int i = 0; i < DEDUP_MAP_HEADER_LEN; i++) {
        uint8_t h[DEDUP_MAP_HEADER_LEN];

        make_header(h, 1, 1);
        h[i] ^= 0x80;
        if (i >= 24 && i < 27) {
            CHECK(i == 26 || !parse_header(h));
        } else {
            CHECK(parse_header(h));
        }
    }
}

static const char *extent(uint64_t gpa, uint64_t offset, uint64_t pages,
                          uint32_t disk, uint64_t *end)
{
    uint8_t b[DEDUP_MAP_EXTENT_LEN];
    DedupMapExtent e;
    const char *err;

    put_le(b, gpa, 8);
    put_le(b + 8, offset, 8);
    put_le(b + 16, pages, 4);
    put_le(b + 20, disk, 4);
    err = dedup_map_parse_extent(b, 2, end, &e);
    if (!err && (e.gpa != gpa || e.offset != offset || e.pages != pages ||
                 e.disk != disk || *end != gpa + pages * 4096)) {
        return "decoded wrongly";
    }
    return err;
}

static void extents(void)
{
    const uint64_t top = (uint64_t)INT64_MAX + 1;
    uint64_t end = 0, kept;

    CHECK(!extent(0, 512, 1, 0, &end) && end == 4096);
    CHECK(!extent(4096, 0, 1 << 24, 1, &end));
    kept = end;
    CHECK(strstr(extent(end - 4096, 0, 1, 0, &end), "not sorted"));
    CHECK(strstr(extent(end + 2048, 0, 1, 0, &end), "aligned"));
    CHECK(strstr(extent(end, 511, 1, 0, &end), "aligned"));
    CHECK(strstr(extent(end, 0, 0, 0, &end), "length"));
    CHECK(strstr(extent(end, 0, (1 << 24) + 1, 0, &end), "length"));
    CHECK(strstr(extent(end, 0, UINT32_MAX, 0, &end), "length"));
    CHECK(strstr(extent(end, 0, 1, 2, &end), "not listed"));
    CHECK(strstr(extent(end, 0, 1, UINT32_MAX, &end), "not listed"));
    CHECK(strstr(extent(top - 4096, 0, 2, 0, &end), "length"));
    CHECK(strstr(extent(end, top - 4096, 2, 0, &end), "length"));
    CHECK(strstr(extent(UINT64_MAX - 4095, 0, 1, 0, &end), "length"));
    CHECK(strstr(extent(end, UINT64_MAX - 511, 1, 0, &end), "length"));
    CHECK(end == kept);
    CHECK(!extent(top - 8192, top - 8192, 1, 0, &end));
}

int main(void)
{
    RUN(header);
    RUN(header_every_byte);
    RUN(extents);
    return test_status;
}
