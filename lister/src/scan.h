/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the page structures in ascending order of memory and collects runs:
 * pages that adjoin in memory and in a file.
 *
 * Memory is bounded: when a table is full, the runs so far are resolved and
 * listed, and the scan goes on with empty tables.  As it goes upwards, the
 * listing does as well.
 */
#ifndef SCAN_H
#define SCAN_H

#include <stdbool.h>
#include <stdint.h>

#include "budget.h"
#include "kernel.h"
#include "listing.h"
#include "owners.h"

struct run {
    uint64_t page;              /* number of the first page of memory */
    uint64_t index;             /* page of the file */
    uint32_t owner, pages;
};

struct scan {
    const struct kernel *kernel;
    struct budget *budget;
    struct listing_figures *figures;
    uint32_t page_size;
    struct owners owners;
    struct run *run;
    uint32_t runs, room;
    uint8_t *buffer;            /* page structures */
    /* Where it goes on */
    unsigned segment;
    uint64_t next;              /* page of memory */
    uint64_t from;              /* what is before is not looked at */
    /* The last page that heads a folio, and whether its tails are listed */
    uint64_t head, head_page, head_index;
    uint32_t head_owner;        /* UINT32_MAX: they are not */
    uint64_t *head_figure;      /* what tails are counted as; NULL: not */
    bool head_cached;
};

/* Why a scan stops */
enum scan_state {
    SCAN_END,                   /* memory has been scanned to its end */
    SCAN_FULL,                  /* a table is full */
    SCAN_TIME,                  /* only the time to resolve is left */
};

bool scan_init(struct scan *s, const struct kernel *k, struct budget *b,
               struct listing_figures *f, size_t run_bytes,
               size_t owner_bytes);
/* Fills the tables, until resolving their runs would take the time that is
 * left if a run takes `us_per_run`. */
enum scan_state scan_some(struct scan *s, uint32_t us_per_run);
void scan_clear(struct scan *s);

#endif
