/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a listing may cost.  The first limit that is reached is kept in
 * `ended`; whoever works in a loop asks now and then and stops.
 */
#ifndef BUDGET_H
#define BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "listing-format.h"

struct budget {
    uint64_t start_us;
    uint64_t limit_us;              /* after the start */
    size_t memory_limit;            /* bytes */
    size_t memory, memory_peak;     /* in use; most ever */
    uint64_t read_limit;            /* bytes from disks */
    enum listing_status ended;
};

uint64_t now_us(void);

void budget_start(struct budget *b);

/* False when time is up */
bool budget_time(struct budget *b);

/* Microseconds */
uint64_t budget_time_left(const struct budget *b);

/* False when this process has caused more disk reads than it may */
bool budget_reads(struct budget *b);

/* Bytes this process has had read from disks, UINT64_MAX: not known */
uint64_t budget_bytes_read(void);

/* Zeroed memory, or NULL (and ended) beyond the limit */
void *budget_alloc(struct budget *b, size_t bytes);
void budget_free(struct budget *b, void *p, size_t bytes);

/* What of the limit is left, bytes */
size_t budget_left(const struct budget *b);

#endif
