/*
 * Batches of compressed pages: format, see compress-batch.c
 *
 * Everything here is pure: buffers in, values out, no QEMU state, so that
 * unit tests and fuzzers link it alone.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_COMPRESS_BATCH_H
#define MIGRATION_DEDUP_COMPRESS_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zstd.h>

#define DEDUP_BATCH_PAGES       64
#define DEDUP_BATCH_PAGE        4096
#define DEDUP_BATCH_RAW         (DEDUP_BATCH_PAGES * DEDUP_BATCH_PAGE)
/* Codec, RAM block, number, length, and 10 bytes for each page's number */
#define DEDUP_BATCH_HEADER      (1 + 2 + 1 + 4 + DEDUP_BATCH_PAGES * 10)
#define DEDUP_BATCH_PAYLOAD     (DEDUP_BATCH_HEADER + DEDUP_BATCH_RAW)

/* What is tried first, to find pages that do not compress */
#define DEDUP_BATCH_SAMPLE      4

typedef struct DedupBatch {
    unsigned block;             /* index in SETUP */
    unsigned n;                 /* pages, at most DEDUP_BATCH_PAGES */
    uint64_t pages[DEDUP_BATCH_PAGES];  /* in the RAM block, ascending */
    const uint8_t *frame;       /* in the payload */
    size_t len;                 /* of it, bytes */
} DedupBatch;

/*
 * Encode the header of @b, all but the frame itself, into @out (at least
 * DEDUP_BATCH_HEADER bytes).  Returns its length.
 */
size_t dedup_batch_header(uint8_t *out, const DedupBatch *b);

/*
 * Decode a payload of @len bytes; @b->frame points into it.  False: malformed.
 * The caller checks block and pages against what exists.
 */
bool dedup_batch_decode(const uint8_t *payload, size_t len, DedupBatch *b);

/*
 * Compress @raw, @n pages, into @frame, which has room for as much.  Returns
 * the length, or 0 if an eighth or less would be saved.  @sample: try some
 * of the pages first and give up early.
 */
size_t dedup_batch_deflate(ZSTD_CCtx *ctx, int level, bool sample,
                           const uint8_t *raw, unsigned n, uint8_t *frame);

/*
 * Decompress the frame of @b into @raw (DEDUP_BATCH_RAW bytes).  NULL, or
 * what is wrong with it.
 */
const char *dedup_batch_inflate(ZSTD_DCtx *ctx, const DedupBatch *b,
                                uint8_t *raw);

#endif
