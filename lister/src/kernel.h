/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the running kernel's memory, /proc/kcore, by virtual address.
 *
 * What is read changes meanwhile, and nothing is locked: what comes of it
 * is a guess, as all the host gets from a guest.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"
#include "layout.h"

#define KERNEL_MAX_SEGMENTS 512

struct kernel_segment {
    uint64_t address, length, physical, offset;   /* offset: in the file */
};

struct kernel {
    int fd;
    unsigned ram_count, other_count;
    struct kernel_segment ram[KERNEL_MAX_SEGMENTS];     /* by address */
    struct kernel_segment other[KERNEL_MAX_SEGMENTS];
    uint64_t pages;             /* address of the page structure of page 0 */
    struct kernel_layout layout;
    const char *no_btrfs;       /* why inodes of btrfs cannot be told */
};

/* NULL when all is well, else in a few words why this cannot be used.
 * `btrfs`: its inodes are wanted as well */
const char *kernel_open(struct kernel *k, bool btrfs, struct budget *b);
void kernel_close(struct kernel *k);
/* False: not all of it could be read */
bool kernel_read(const struct kernel *k, uint64_t address, void *into,
                 size_t length);
/* By guest-physical address */
bool kernel_read_physical(const struct kernel *k, uint64_t address,
                          void *into, size_t length);
/*
 * The address of the head of a folio, for the page structure at `page` whose
 * member page_head (compound_head, compound_info) is `head`; `page` itself
 * where it is no tail.  A tail has bit 0 set.  The rest is the head's address,
 * or since Linux 7 a mask that makes it of the tail's (where page structures
 * lie at multiples of the size of all structures of a folio).
 */
uint64_t kernel_folio(const struct kernel *k, uint64_t page, uint64_t head);

/* For tests: the program headers of /proc/kcore, whole */
const char *kernel_parse_segments(struct kernel *k, const uint8_t *headers,
                                  size_t size, unsigned count,
                                  uint32_t struct_page);

#endif
