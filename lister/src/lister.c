/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "lister.h"

#include <sys/resource.h>
#include <unistd.h>

#include "disks.h"
#include "kernel.h"
#include "listing.h"
#include "mounts.h"
#include "privileges.h"
#include "probe.h"
#include "resolve.h"
#include "scan.h"
#include "walk.h"

/* Large, and only touched where used */
static struct kernel kernel;
static struct disks disks;
static struct mounts mounts;
static struct listing listing;
static struct scan scan;
static struct resolve resolve;
static struct walk walk;
static struct listing_figures figures;

static uint64_t cpu_us(const struct rusage *usage)
{
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) *
           UINT64_C(1000000) + usage->ru_utime.tv_usec +
           usage->ru_stime.tv_usec;
}

/* The tables share what is left of the memory; there are more pages than
 * files, and more runs than parts of one. */
static const char *make_tables(struct budget *b, const struct kernel *k,
                               uint32_t runs)
{
    size_t left = budget_left(b);
    size_t per_run = sizeof(struct run) + 2 * sizeof(uint32_t);
    size_t most;

    /* Something for the rest of us */
    left = left > 2 << 20 ? left - (1 << 20) : left / 2;
    most = left / 2 / per_run;
    most = runs && runs < most ? runs : most;
    resolve.disks = &disks;
    resolve.mounts = &mounts;
    resolve.listing = &listing;
    resolve.budget = b;
    resolve.figures = &figures;
    if (!scan_init(&scan, k, b, &figures,
                   most * sizeof(struct run), left / 4) ||
        !resolve_init(&resolve, &scan, left / 4)) {
        return "tables do not fit into the memory limit";
    }
    return NULL;
}

static void list_pages(struct budget *b)
{
    bool more;

    do {
        more = scan_some(&scan);
        resolve_runs(&resolve);
        scan_clear(&scan);
    } while (more && !b->ended);
}

static void list_files(struct budget *b)
{
    enum listing_status ended;

    walk_files(&walk);
    /* What was found before a limit was reached is listed all the same. */
    ended = b->ended;
    b->ended = LISTING_WHOLE;
    b->limit_us += b->limit_us / 4;
    resolve_runs(&resolve);
    b->ended = ended ? ended : b->ended;
    listing_skip(&listing, LISTING_WHY_METHOD, 0,
                 "metadata, and files nobody finds by name");
}

/* Opens what the best method needs that works. */
static enum listing_method choose(const struct lister_options *options,
                                  struct budget *b)
{
    enum listing_method wanted = options->method;
    size_t before = b->memory;
    const char *why;

    if (wanted != LISTING_METHOD_FILES) {
        why = kernel_open(&kernel, b);
        if (!why) {
            why = make_tables(b, &kernel, options->runs);
        }
        if (!why && !probe(&kernel, &scan.owners)) {
            why = "the kernel's page structures are not as expected";
        }
        if (!why) {
            scan.from = options->from / scan.page_size;
            return LISTING_METHOD_PAGES;
        }
        listing_skip(&listing, LISTING_WHY_METHOD, 0, "%s", why);
        kernel_close(&kernel);
        budget_forget(b, before);
        /* Maybe it was the memory, of which the other one needs less. */
        b->ended = LISTING_WHOLE;
    }
    if (wanted != LISTING_METHOD_PAGES) {
        why = resident_open(&walk.resident, b);
        if (!why) {
            why = make_tables(b, NULL, options->runs);
        }
        if (!why) {
            scan.from = options->from / scan.page_size;
            walk.scan = &scan;
            walk.mounts = &mounts;
            walk_processes(&walk);
            return LISTING_METHOD_FILES;
        }
        listing_skip(&listing, LISTING_WHY_METHOD, 0, "%s", why);
    }
    return LISTING_METHOD_NONE;
}

int lister_run(int fd, const struct lister_options *options)
{
    struct budget budget = {
        .limit_us = options->limit_ms * UINT64_C(1000),
        .memory_limit = (size_t)options->memory_kib << 10,
        .read_limit = (uint64_t)options->read_kib << 10,
    };
    enum listing_method method = LISTING_METHOD_NONE;
    const char *why;
    struct rusage usage;

    budget_start(&budget);
    listing_begin(&listing, fd, options->extents, sysconf(_SC_PAGESIZE),
                  options->nonce);
    disks_find(&disks);
    mounts_find(&mounts);
    for (uint32_t i = 0; i < disks.disks; i++) {
        listing_put_disk(&listing, &disks.disk[i]);
    }
    method = choose(options, &budget);
    why = options->keep_privileges ? NULL :
          privileges_drop(method == LISTING_METHOD_FILES);
    if (why) {
        listing_skip(&listing, LISTING_WHY_OTHER, 0, "%s", why);
        method = LISTING_METHOD_NONE;
    } else if (method == LISTING_METHOD_PAGES) {
        list_pages(&budget);
    } else if (method == LISTING_METHOD_FILES) {
        list_files(&budget);
    }
    getrusage(RUSAGE_SELF, &usage);
    listing_end(&listing, method == LISTING_METHOD_NONE ? LISTING_FAILED :
                budget.ended, method, &figures,
                now_us() - budget.start_us, cpu_us(&usage),
                (uint64_t)usage.ru_maxrss << 10, budget_bytes_read());
    return listing.broken;
}
