/*
 * Guest pages by what they hold
 *
 * Made of the pages nobody knows a place of, then searched for each block of a
 * disk.  So its size depends on the guest's memory and not on its disks:
 *
 *   heads     4 bytes for each page it was made for, rounded down to a power
 *             of two; touched as they are used
 *   entries   12 bytes for each page that was added, in chunks
 *
 * An entry keeps 32 bits of the hash, beside those that led to its head: of
 * 2^32 blocks, about as many as there are entries under one head are taken
 * for a page that they are not.  Who uses it compares the bytes.
 *
 * No locking: one thread has it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_CONTENT_TABLE_H
#define MIGRATION_DEDUP_CONTENT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define DEDUP_CONTENT_MAX_PAGES (1ULL << 31)    /* 8 TiB of memory */

typedef struct DedupContentTable DedupContentTable;

/* The bytes that a table takes if all of @pages are added */
uint64_t dedup_content_bound(uint64_t pages);

/* NULL: there is not enough memory for the heads, or @pages is 0 */
DedupContentTable *dedup_content_new(uint64_t pages);
void dedup_content_free(DedupContentTable *t);

/* False: there is not enough memory, or no room for another page */
bool dedup_content_add(DedupContentTable *t, uint64_t hash, uint32_t page);

/* Call @found for each page with that hash; they are forgotten */
typedef void DedupContentFound(void *opaque, uint32_t page);
void dedup_content_take(DedupContentTable *t, uint64_t hash,
                        DedupContentFound *found, void *opaque);

/* Pages that were added, and not taken since */
uint64_t dedup_content_pages(const DedupContentTable *t);
/* What it takes now */
uint64_t dedup_content_bytes(const DedupContentTable *t);

#endif
