/*
 * Batches of compressed pages: format
 * ===================================
 *
 * The payload of an element DEDUP_ELEMENT_BATCH (wire.h), which a source
 * sends only to a destination that named DEDUP_FEATURE_ZSTD in its HELLO, and
 * only after a SETUP with DEDUP_SETUP_COMPRESS:
 *
 *   u8      codec: 1, zstd (RFC 8878)
 *   be16    RAM block, index in SETUP
 *   u8      n, number of pages: 1 to 64
 *   be32    length of the frame: 1 to n * 4096 - 1, and all that is left
 *   varint  number of the first page in the RAM block
 *   n - 1 varints: pages between each page and the one before it
 *   frame   one zstd frame, without a dictionary, that holds the n pages one
 *           after the other and nothing else
 *
 * The page numbers ascend: no page is twice in a batch.  A payload is
 * DEDUP_BATCH_PAYLOAD bytes at most, what it expands to DEDUP_BATCH_RAW.  The
 * frame is decompressed in one go into a buffer of exactly n pages, so that
 * what its header claims (size, window) decides about no allocation.
 *
 * Order: a page is in one batch, record or content of a section at most, and
 * a section ends (RAM_SAVE_FLAG_EOS) only when all its batches are placed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "compress-batch.h"
#include "wire.h"

#define CODEC_ZSTD      1

size_t dedup_batch_header(uint8_t *out, const DedupBatch *b)
{
    uint8_t *p = dedup_put_be(out, CODEC_ZSTD, 1);

    p = dedup_put_be(p, b->block, 2);
    p = dedup_put_be(p, b->n, 1);
    p = dedup_put_be(p, b->len, 4);
    for (unsigned i = 0; i < b->n; i++) {
        p = dedup_put_varint(p, i ? b->pages[i] - b->pages[i - 1] - 1
                                  : b->pages[0]);
    }
    return p - out;
}

bool dedup_batch_decode(const uint8_t *payload, size_t len, DedupBatch *b)
{
    DedupReader r;
    uint64_t codec, next = 0;

    if (len > DEDUP_BATCH_PAYLOAD) {
        return false;
    }
    dedup_reader_init(&r, payload, len);
    codec = dedup_get_be(&r, 1);
    b->block = dedup_get_be(&r, 2);
    b->n = dedup_get_be(&r, 1);
    b->len = dedup_get_be(&r, 4);
    if (r.bad || codec != CODEC_ZSTD || !b->n || b->n > DEDUP_BATCH_PAGES ||
        !b->len || b->len >= (size_t)b->n * DEDUP_BATCH_PAGE) {
        return false;
    }
    for (unsigned i = 0; i < b->n; i++) {
        uint64_t gap = dedup_get_varint(&r);

        /* Room for one more: the page after the last has a number, too */
        if (r.bad || gap >= UINT64_MAX - next) {
            return false;
        }
        b->pages[i] = next + gap;
        next = b->pages[i] + 1;
    }
    b->frame = dedup_get_bytes(&r, b->len);
    return b->frame && r.p == r.end;
}

static size_t deflate(ZSTD_CCtx *ctx, int level, const uint8_t *raw,
                      size_t len, uint8_t *frame)
{
    /* No room for more than is worth it: then it gives up by itself */
    size_t n = ZSTD_compressCCtx(ctx, frame, len - len / 8, raw, len, level);

    return ZSTD_isError(n) ? 0 : n;
}

size_t dedup_batch_deflate(ZSTD_CCtx *ctx, int level, bool sample,
                           const uint8_t *raw, unsigned n, uint8_t *frame)
{
    if (sample && n > 2 * DEDUP_BATCH_SAMPLE) {
        uint8_t some[DEDUP_BATCH_SAMPLE * DEDUP_BATCH_PAGE];

        for (unsigned i = 0; i < DEDUP_BATCH_SAMPLE; i++) {
            memcpy(some + i * DEDUP_BATCH_PAGE,
                   raw + (size_t)(i * n / DEDUP_BATCH_SAMPLE) *
                   DEDUP_BATCH_PAGE, DEDUP_BATCH_PAGE);
        }
        if (!deflate(ctx, level, some, sizeof(some), frame)) {
            return 0;
        }
    }
    return deflate(ctx, level, raw, (size_t)n * DEDUP_BATCH_PAGE, frame);
}

const char *dedup_batch_inflate(ZSTD_DCtx *ctx, const DedupBatch *b,
                                uint8_t *raw)
{
    static const uint8_t magic[4] = { 0x28, 0xb5, 0x2f, 0xfd };
    size_t want = (size_t)b->n * DEDUP_BATCH_PAGE, n;

    /* One frame of today's format: libzstd may know formats before it, too */
    if (b->len < sizeof(magic) || memcmp(b->frame, magic, sizeof(magic)) ||
        ZSTD_findFrameCompressedSize(b->frame, b->len) != b->len) {
        return "not one zstd frame";
    }
    n = ZSTD_decompressDCtx(ctx, raw, want, b->frame, b->len);
    if (ZSTD_isError(n)) {
        return ZSTD_getErrorName(n);
    }
    return n == want ? NULL : "fewer bytes than pages";
}
