/*
 * Loading of external maps: into a memory with holes, in parts, and what a
 * hostile one can make it do
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "qemu/osdep.h"
#include "dedup-int.h"
#include "map-format.h"

#define TEST_GROUP "map-load"
DedupInject dedup_inject;

#define MOST_EXTENTS    (3 * 16384 + 5)         /* several parts */

/* RAM, a hole, a device's region, a hole, RAM, nothing behind */
static const struct {
    uint64_t at, pages;
    bool ram;
} layout[] = {
    { 0, 4096, true },
    { 65536, 300, false },
    { 1 << 20, 16384, true },
};

static MemoryRegion regions[3];
static RAMBlock rams[3];
static DedupRam tables[3];
/* sector + 1 of each page */
static uint64_t hints[3][16384];
static unsigned bql_held, lookups, most_lookups, turns;

void bql_lock(void)
{
    assert(!bql_held++);
    lookups = 0;
}

void bql_unlock(void)
{
    assert(bql_held-- == 1);
    most_lookups = MAX(most_lookups, lookups);
    turns++;
}

MemoryRegionSection memory_region_find(MemoryRegion *mr, hwaddr at,
                                       uint64_t size)
{
    assert(bql_held);
    lookups++;
    for (unsigned i = 0; i < 3; i++) {
        uint64_t start = layout[i].at << 12;
        uint64_t end = start + (layout[i].pages << 12);

        if (at < end) {
            uint64_t from = MAX(at, start);

            regions[i].refs++;
            return (MemoryRegionSection) {
                .mr = &regions[i], .size = end - from,
                .offset_within_region = from - start,
                .offset_within_address_space = from,
            };
        }
    }
    return (MemoryRegionSection) { 0 };
}

void memory_region_unref(MemoryRegion *mr)
{
    assert(mr->refs-- > 0);
}

bool memory_region_is_ram(MemoryRegion *mr)
{
    return layout[mr - regions].ram;
}

DedupRam *dedup_ram_get(RAMBlock *rb)
{
    return rb->dedup;
}

bool dedup_hint_fill(DedupRam *dr, uint64_t page, unsigned slot,
                     uint64_t sector, uint16_t fingerprint)
{
    unsigned i = dr - tables;

    assert(bql_held && i < 3 && page < layout[i].pages && slot == 1);
    hints[i][page] = sector + 1;
    return true;
}

BlockBackend *dedup_blk_by_device(const char *id, Error **errp)
{
    return strcmp(id, "disk") ? NULL : (BlockBackend *)&layout;
}

unsigned dedup_slot_of(BlockBackend *blk)
{
    return 1;
}

void error_setg(Error **errp, const char *fmt, ...)
{
}

static void put_le(FILE *f, uint64_t v, unsigned bytes)
{
    while (bytes--) {
        fputc(v & 0xff, f);
        v >>= 8;
    }
}


static DedupHintsInfo load(const DedupMapExtent *extents, uint64_t n)
{
    DedupHintsInfo info;
    char names[DEDUP_MAP_DISK_LEN] = "disk";
    FILE *f = tmpfile();
    int fd;

    memset(hints, 0, sizeof(hints));
    most_lookups = turns = 0;
    for (unsigned i = 0; i < 3; i++) {
        regions[i] = (MemoryRegion) { .ram_block = &rams[i] };
        rams[i].dedup = &tables[i];
    }
    fwrite(DEDUP_MAP_MAGIC, 1, 8, f);
    put_le(f, 1, 4);
    put_le(f, 64, 4);
    put_le(f, 1, 8);
    put_le(f, n, 8);
    put_le(f, 0, 8);
    put_le(f, 0, 8);
    put_le(f, 0, 8);
    put_le(f, 0, 8);
    fwrite(names, 1, sizeof(names), f);
    for (uint64_t i = 0; i < n; i++) {
        put_le(f, extents[i].gpa, 8);
        put_le(f, extents[i].offset, 8);
        put_le(f, extents[i].pages, 4);
        put_le(f, extents[i].disk, 4);
    }
    fflush(f);
    fd = dup(fileno(f));
    lseek(fd, 0, SEEK_SET);
    dedup_map_load(fd, NULL);
    do {
        g_usleep(1000);
        dedup_map_query(&info);
        g_free(info.map_error);
    } while (info.map_state == DEDUP_MAP_STATE_LOADING);
    fclose(f);
    for (unsigned i = 0; i < 3; i++) {
        g_assert(!regions[i].refs);
    }
    return info;
}

/* What the hints have to be, page by page */
static void check(const DedupMapExtent *extents, uint64_t n,
                  const DedupHintsInfo *info)
{
    uint64_t set = 0, all = 0;

    CHECK(info->map_state == DEDUP_MAP_STATE_LOADED);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t first = extents[i].gpa >> 12;

        all += extents[i].pages;
        for (unsigned k = 0; k < 3; k++) {
            uint64_t from = MAX(first, layout[k].at);
            uint64_t to = MIN(first + extents[i].pages,
                              layout[k].at + layout[k].pages);

            for (uint64_t page = from; layout[k].ram && page < to; page++) {
                uint64_t want = (extents[i].offset >> 9) +
                                (page - first) * 8 + 1;

                CHECK(hints[k][page - layout[k].at] == want);
                hints[k][page - layout[k].at] = 0;
                set++;
            }
        }
    }
    for (unsigned k = 0; k < 3; k++) {
        for (uint64_t page = 0; page < layout[k].pages; page++) {
            CHECK(!hints[k][page]);
        }
    }
    CHECK(info->map_pages == set && !info->map_kept);
    CHECK(info->map_skipped == all - set);
}

static void one_over_all(void)
{
    DedupMapExtent e = { 0, 4096, 1 << 24, 0 };
    DedupHintsInfo info = load(&e, 1);

    SUB(check(&e, 1, &info));
}

static void random_maps(void)
{
    static DedupMapExtent e[MOST_EXTENTS];

    for (unsigned round = 0; round < 12; round++) {
        uint64_t page = below(8), n = 0;
        unsigned longest = 1 << below(16);
        DedupHintsInfo info;

        while (n < MOST_EXTENTS && page < (1 << 20) + 20000) {
            uint64_t len = below(longest) + 1;

            e[n++] = (DedupMapExtent) { page << 12, below(1 << 20) * 512ul,
                                        len, 0 };
            page += len + below(4) * below(longest);
        }
        info = load(e, n);
        SUB(check(e, n, &info));
    }
}

/* Each as long as can be, nearly all where there is no memory */
static void longest_extents(void)
{
    static DedupMapExtent e[MOST_EXTENTS];
    DedupHintsInfo info;

    for (uint64_t i = 0; i < MOST_EXTENTS; i++) {
        e[i] = (DedupMapExtent) { i << 36, 0, 1 << 24, 0 };
    }
    info = load(e, MOST_EXTENTS);
    SUB(check(e, MOST_EXTENTS, &info));
    /* One for each turn; what is cut into pieces is memory alone */
    CHECK(most_lookups < 16);
    CHECK(turns < 10000);
}

static void refused(void)
{
    DedupMapExtent e[2] = { { 0, 0, 2, 0 }, { 4096, 0, 1, 0 } };
    DedupHintsInfo info = load(e, 2);

    CHECK(info.map_state == DEDUP_MAP_STATE_FAILED);
    CHECK(!hints[0][0] && !hints[0][1]);
}

int main(void)
{
    RUN(one_over_all);
    RUN(random_maps);
    RUN(longest_extents);
    RUN(refused);
    return test_status;
}
