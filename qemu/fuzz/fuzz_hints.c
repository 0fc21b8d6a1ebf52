/*
 * Fuzz HINTS: no access beyond the payload, no more pages than permitted, and
 * what is decoded survives being encoded and decoded again
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdlib.h>
#include <string.h>
#include "wire.h"

typedef struct Seen {
    DedupWireHint hints[DEDUP_WIRE_MAX_HINTS];
    unsigned n;
} Seen;

static int see(void *opaque, const DedupWireHint *h)
{
    Seen *s = opaque;

    if (s->n == DEDUP_WIRE_MAX_HINTS || h->block >= DEDUP_WIRE_MAX_BLOCKS ||
        h->disk >= DEDUP_WIRE_MAX_DISKS) {
        abort();
    }
    s->hints[s->n++] = *h;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Seen one, two;
    static uint8_t buf[DEDUP_WIRE_HINTS_BOUND(DEDUP_WIRE_MAX_HINTS)];

    if (size > DEDUP_WIRE_MAX_PAYLOAD) {
        return -1;
    }
    one.n = two.n = 0;
    if (dedup_decode_hints(data, size, see, &one)) {
        return 0;
    }
    size = dedup_encode_hints(buf, one.hints, one.n);
    if (size > DEDUP_WIRE_HINTS_BOUND(one.n) ||
        dedup_decode_hints(buf, size, see, &two) || one.n != two.n) {
        abort();
    }
    for (unsigned i = 0; i < one.n; i++) {
        const DedupWireHint *a = &one.hints[i], *b = &two.hints[i];

        if (a->block != b->block || a->disk != b->disk ||
            a->page != b->page || a->sector != b->sector ||
            a->fingerprint != b->fingerprint) {
            abort();
        }
    }
    return 0;
}
