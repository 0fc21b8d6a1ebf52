/* SPDX-License-Identifier: Apache-2.0 */
/* From runs to a listing, with tables that are too small for all of it */
#define _GNU_SOURCE
#include "test.h"
#include "resolve.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define TEST_GROUP "resolve"
#define RUNS 300
#define PIECES 4000

static struct disks disks;
static struct mounts mounts;
static struct listing listing;
static struct budget budget;
static struct listing_figures figures;
static struct scan scan;
static struct resolve resolve;
static uint8_t out[2][1 << 20];

/* A volume whose pages lie on four disks in turn */
static void make_volume(void)
{
    disks.devices = disks.disks = 0;
    disks.device[disks.devices++] = (struct disks_device) {
        .major = 254, .minor = 0, .resolved = true, .count = PIECES,
        .size = PIECES * UINT64_C(4096), .name = "dm-0",
    };
    for (uint32_t i = 0; i < PIECES; i++) {
        uint64_t start = (uint64_t)i * LISTING_PAGE;

        disks.piece[i] = (struct disks_piece) {
            .start = start, .length = LISTING_PAGE, .offset = start * 3,
            .disk = i % 4,
        };
    }
    for (uint32_t i = 0; i < 4; i++) {
        disks.disk[disks.disks++].size = UINT64_C(1) << 40;
    }
}

static bool prepare(size_t part_bytes)
{
    budget = (struct budget) {
        .memory_limit = 64 << 20, .limit_us = UINT64_C(3600) * 1000000,
        .read_limit = UINT64_MAX,
    };
    memset(&figures, 0, sizeof(figures));
    budget_start(&budget);
    listing_begin(&listing, memfd_create("listing", 0), 1 << 24, 4096, 1,
                  false);
    for (uint32_t i = 0; i < disks.disks; i++) {
        listing_put_disk(&listing, &disks.disk[i]);
    }
    resolve.disks = &disks;
    resolve.mounts = &mounts;
    resolve.listing = &listing;
    resolve.budget = &budget;
    resolve.figures = &figures;
    return scan_init(&scan, NULL, &budget, &figures,
                     RUNS * sizeof(struct run), 1 << 20) &&
           resolve_init(&resolve, &scan, part_bytes);
}

static void add_runs(void)
{
    struct owner owner = { .kind = OWNER_DEVICE, .major = 254, .minor = 0 };
    struct owner unknown = { .kind = OWNER_DEVICE, .major = 9, .minor = 1,
                             .mapping = 8 };

    owner.mapping = 4;
    owners_add(&scan.owners, &owner);
    owners_add(&scan.owners, &unknown);
    for (uint32_t i = 0; i < RUNS; i++) {
        scan.run[scan.runs++] = (struct run) {
            .page = 1000 + 20 * i, .index = (i * 7919) % (PIECES - 20),
            .owner = i % 50 == 7, .pages = 1 + i % 13,
        };
    }
}

static size_t listed(uint8_t *into, size_t part_bytes)
{
    ssize_t length;

    if (!prepare(part_bytes)) {
        return 0;
    }
    add_runs();
    resolve_runs(&resolve);
    listing_end(&listing, budget.ended, LISTING_METHOD_PAGES, &figures, 0, 0,
                0, 0);
    length = pread(listing.fd, into, sizeof(out[0]), 0);
    close(listing.fd);
    return length < 0 ? 0 : length;
}

/* However small the table of parts is, the listing is the same. */
static void small_tables(void)
{
    size_t whole, some;

    make_volume();
    whole = listed(out[0], 1 << 20);
    CHECK(whole > 1000 * LISTING_EXTENT_LEN && !budget.ended);
    CHECK(figures.no_place && listing.skips.count == 1);
    for (unsigned parts = 13; parts < 2000; parts = parts * 3 / 2) {
        some = listed(out[1], parts * sizeof(struct part));
        CHECK(!budget.ended);
        CHECK(some == whole && !memcmp(out[0], out[1], whole));
    }
}

/* What fits of a run that is larger than the table is listed. */
static void tiny_table(void)
{
    make_volume();
    CHECK(listed(out[0], 2 * sizeof(struct part)) && !budget.ended);
    CHECK(listing.extents > RUNS / 2);
}

/* What was resolved before a limit is listed. */
static void out_of_time(void)
{
    make_volume();
    CHECK(prepare(1 << 20));
    add_runs();
    budget.limit_us = 0;
    resolve_runs(&resolve);
    CHECK(budget.ended == LISTING_ENDED_TIME && !listing.extents);
    close(listing.fd);
    CHECK(prepare(1 << 20));
    add_runs();
    budget.read_limit = 0;
    resolve_runs(&resolve);
    CHECK(!budget_bytes_read() || budget.ended == LISTING_ENDED_READS);
    close(listing.fd);
}

/* The header of a page of memory says: block at `address`, these flags */
static void put_header(int memory, uint64_t page, uint64_t address,
                       uint64_t flags)
{
    uint64_t header[] = { address, flags };

    pwrite(memory, header, sizeof(header), page * LISTING_PAGE + 48);
}

/* Of btrfs's trees only what its blocks' headers say was written */
static void trees(void)
{
    static struct kernel kernel = { .ram_count = 1 };
    struct owner owner = { .kind = OWNER_TREE, .major = 254, .mapping = 4 };
    static const struct { uint64_t page, index; uint32_t pages; } run[] = {
        { 10, 100, 4 },         /* written */
        { 20, 106, 2 },         /* the end of one */
        { 30, 104, 2 },         /* and its beginning */
        { 40, 108, 8 },         /* given up, and one written */
        { 50, 117, 3 },         /* without its beginning */
        { 60, 120, 4 },         /* another block's address */
    };

    make_volume();
    disks.device[0].block = 4 * LISTING_PAGE;
    CHECK(prepare(1 << 20));
    kernel.fd = memfd_create("memory", 0);
    kernel.ram[0] = (struct kernel_segment) { 1 << 20, 1 << 20, 0, 0 };
    CHECK(!ftruncate(kernel.fd, 1 << 20));
    scan.kernel = &kernel;
    put_header(kernel.fd, 10, 100 * LISTING_PAGE, 1);
    put_header(kernel.fd, 30, 104 * LISTING_PAGE, UINT64_C(1) << 56 | 1);
    put_header(kernel.fd, 40, 108 * LISTING_PAGE, UINT64_C(1) << 56);
    put_header(kernel.fd, 44, 112 * LISTING_PAGE, 1);
    put_header(kernel.fd, 60, 124 * LISTING_PAGE, 1);
    owners_add(&scan.owners, &owner);
    for (size_t i = 0; i < sizeof(run) / sizeof(*run); i++) {
        scan.run[scan.runs++] = (struct run) {
            run[i].page, run[i].index, 0, run[i].pages,
        };
    }
    resolve_runs(&resolve);
    CHECK(resolve.parts == 12 && figures.no_place == 11);
    CHECK(resolve.part[0].offset == 300 * LISTING_PAGE &&
          resolve.part[0].run == 0);
    CHECK(resolve.part[4].run == 2 && resolve.part[6].run == 1);
    CHECK(resolve.part[8].run == 3 && resolve.part[8].page == 4);
    CHECK(listing.skips.count == 1);
    disks.device[0].block = 0;
    scan.owners.owner[0].kind = OWNER_TREE;
    resolve_runs(&resolve);
    CHECK(!resolve.parts && listing.skips.count == 2);
    close(kernel.fd);
    close(listing.fd);
}

int main(void)
{
    RUN(small_tables);
    RUN(tiny_table);
    RUN(out_of_time);
    RUN(trees);
    return test_status;
}
