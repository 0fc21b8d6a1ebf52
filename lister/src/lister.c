/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "lister.h"

#include <sys/resource.h>
#include <unistd.h>

#include "btrfs.h"
#include "disks.h"
#include "kernel.h"
#include "listing.h"
#include "mounts.h"
#include "privileges.h"
#include "probe.h"
#include "resolve.h"
#include "scan.h"

/* So many are resolved first, to learn how long one takes */
#define FIRST_RUNS 8192

/* Large, and only touched where used */
static struct kernel kernel;
static struct disks disks;
static struct mounts mounts;
static struct listing listing;
static struct scan scan;
static struct resolve resolve;
static struct listing_figures figures;

static uint64_t cpu_us(const struct rusage *usage)
{
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) *
           UINT64_C(1000000) + usage->ru_utime.tv_usec +
           usage->ru_stime.tv_usec;
}

/* The tables share what is left of the memory. There are more runs than
 * files; most runs have one part, few have many. */
static const char *make_tables(struct budget *b, const struct kernel *k,
                               uint32_t runs)
{
    size_t left = budget_left(b);
    size_t part_bytes = sizeof(struct part) + sizeof(struct part) / 8;
    size_t per_run = sizeof(struct run) + 2 * sizeof(uint32_t) + part_bytes;
    size_t most;

    /* Something for the rest of us */
    left = left > 2 << 20 ? left - (1 << 20) : left / 2;
    most = left / 4 * 3 / per_run;
    most = runs && runs < most ? runs : most;
    resolve.disks = &disks;
    resolve.mounts = &mounts;
    resolve.listing = &listing;
    resolve.budget = b;
    resolve.figures = &figures;
    if (!scan_init(&scan, k, b, &figures,
                   most * sizeof(struct run), left / 4) ||
        !resolve_init(&resolve, &scan, most * part_bytes)) {
        return "tables do not fit into the memory limit";
    }
    return NULL;
}

/* A table is filled, resolved, written and used again: memory does not grow
 * with the page cache. */
static void list_pages(struct budget *b)
{
    /* Until the first runs have shown it: a file each, on a slow guest */
    uint64_t us_per_run = 50;
    uint32_t room = scan.room;
    enum scan_state state;

    scan.room = room < FIRST_RUNS ? room : FIRST_RUNS;
    do {
        uint64_t start;

        state = scan_some(&scan, us_per_run);
        start = now_us();
        resolve_runs(&resolve);
        if (scan.runs) {
            us_per_run = (now_us() - start) * 3 / 2 / scan.runs + 1;
        }
        scan_clear(&scan);
        scan.room = room;
    } while (state == SCAN_FULL && !b->ended);
    if (state == SCAN_TIME && !b->ended) {
        b->ended = LISTING_ENDED_TIME;
    }
}

/* Opens what the listing needs. NULL, or why there will be none */
static const char *prepare(const struct lister_options *options,
                           bool btrfs, struct budget *b)
{
    const char *why = kernel_open(&kernel, btrfs, b);

    if (!why) {
        why = make_tables(b, &kernel, options->runs);
    }
    if (!why && !probe(&kernel, &scan.owners)) {
        why = "the kernel's page structures are not as expected";
    }
    scan.from = options->from / sysconf(_SC_PAGESIZE);
    return why;
}

int lister_run(int fd, const struct lister_options *options)
{
    struct budget budget = {
        .limit_us = options->limit_ms * UINT64_C(1000),
        .memory_limit = (size_t)options->memory_kib << 10,
        .read_limit = (uint64_t)options->read_kib << 10,
    };
    const char *why;
    bool btrfs;
    struct rusage usage;

    budget_start(&budget);
    listing_begin(&listing, fd, options->extents, sysconf(_SC_PAGESIZE),
                  options->nonce, options->compact);
    disks_find(&disks);
    mounts_find(&mounts);
    btrfs = btrfs_find(&disks, &mounts);
    for (uint32_t i = 0; i < disks.disks; i++) {
        listing_put_disk(&listing, &disks.disk[i]);
    }
    why = prepare(options, btrfs, &budget);
    if (!why && !options->keep_privileges) {
        why = privileges_drop();
    }
    if (why) {
        listing_skip(&listing, LISTING_WHY_METHOD, 0, "%s", why);
        budget.ended = LISTING_FAILED;
    } else {
        list_pages(&budget);
    }
    getrusage(RUSAGE_SELF, &usage);
    listing_end(&listing, budget.ended,
                why ? LISTING_METHOD_NONE : LISTING_METHOD_PAGES, &figures,
                now_us() - budget.start_us, cpu_us(&usage),
                (uint64_t)usage.ru_maxrss << 10, budget_bytes_read());
    return listing.broken;
}
