/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of memory hold an open file, without the kernel's structures:
 * mapped, asked by mincore() which pages are there, these touched (which
 * needs no disk), their numbers taken from /proc/self/pagemap, and left out
 * when /proc/kpageflags said that they are changed.
 */
#ifndef RESIDENT_H
#define RESIDENT_H

#include <stdbool.h>
#include <stdint.h>

#include "budget.h"
#include "listing.h"
#include "scan.h"

struct resident {
    int pagemap;
    uint32_t page_size;
    uint8_t *flags;             /* a byte a page of memory */
    uint64_t pages;             /* of memory */
};

/* Needs privileges.  NULL when all is well, else what is missing. */
const char *resident_open(struct resident *r, struct budget *b);
/* Adds the file's pages to the scan's runs, for that owner; not in order.
 * False: the table is full. */
bool resident_add(const struct resident *r, struct scan *s, int fd,
                  uint64_t size, uint32_t owner);

#endif
