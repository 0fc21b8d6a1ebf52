/*
 * Fuzz a batch: no access beyond payload and pages, and what is decoded and
 * decompressed survives being compressed, encoded and decoded again
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdlib.h>
#include <string.h>
#include "compress-batch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ZSTD_DCtx *in;
    static ZSTD_CCtx *out;
    static uint8_t frame[DEDUP_BATCH_RAW], buf[DEDUP_BATCH_PAYLOAD];
    DedupBatch one, two;
    uint8_t *raw, *again;
    size_t len;

    if (!in) {
        in = ZSTD_createDCtx();
        out = ZSTD_createCCtx();
    }
    if (!dedup_batch_decode(data, size, &one)) {
        return 0;
    }
    if (one.n < 1 || one.n > DEDUP_BATCH_PAGES ||
        one.frame < data || one.frame + one.len != data + size ||
        one.len >= one.n * DEDUP_BATCH_PAGE) {
        abort();
    }
    for (unsigned i = 1; i < one.n; i++) {
        if (one.pages[i] <= one.pages[i - 1]) {
            abort();
        }
    }
    /* Exactly so much, that the sanitizer sees what goes beyond */
    raw = malloc(one.n * DEDUP_BATCH_PAGE);
    if (!dedup_batch_inflate(in, &one, raw)) {
        two = one;
        two.len = dedup_batch_deflate(out, 1, one.n % 2, raw, one.n, frame);
        two.frame = frame;
        if (two.len) {
            again = malloc(one.n * DEDUP_BATCH_PAGE);
            len = dedup_batch_header(buf, &two);
            memcpy(buf + len, frame, two.len);
            if (!dedup_batch_decode(buf, len + two.len, &two) ||
                two.block != one.block || two.n != one.n ||
                memcmp(two.pages, one.pages,
                       one.n * sizeof(one.pages[0])) ||
                dedup_batch_inflate(in, &two, again) ||
                memcmp(raw, again, one.n * DEDUP_BATCH_PAGE)) {
                abort();
            }
            free(again);
        }
    }
    free(raw);
    return 0;
}
