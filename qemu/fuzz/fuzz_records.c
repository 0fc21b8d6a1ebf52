/*
 * Fuzz RECORDS: no access beyond the payload, and what is decoded survives
 * being encoded and decoded again
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdlib.h>
#include <string.h>
#include "wire.h"

#define MAX (DEDUP_WIRE_MAX_PAYLOAD / DEDUP_DIGEST_LEN)

typedef struct Seen {
    DedupRecord recs[MAX];
    uint32_t first;
    unsigned n;
} Seen;

static int see(void *opaque, uint32_t id, const DedupRecord *rec)
{
    Seen *s = opaque;

    if (s->n == MAX || rec->block >= DEDUP_WIRE_MAX_BLOCKS ||
        rec->disk >= DEDUP_WIRE_MAX_DISKS) {
        abort();
    }
    if (s->n == 0) {
        s->first = id;
    } else if (id != s->first + s->n) {
        abort();
    }
    s->recs[s->n++] = *rec;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Seen one, two;
    static uint8_t buf[DEDUP_WIRE_RECORDS_BOUND(MAX)];

    if (size > DEDUP_WIRE_MAX_PAYLOAD) {
        return -1;
    }
    one.n = two.n = 0;
    if (dedup_decode_records(data, size, see, &one) || !one.n) {
        return 0;
    }
    size = dedup_encode_records(buf, one.first, one.recs, one.n);
    if (size > DEDUP_WIRE_RECORDS_BOUND(one.n) ||
        dedup_decode_records(buf, size, see, &two) || one.n != two.n ||
        one.first != two.first) {
        abort();
    }
    for (unsigned i = 0; i < one.n; i++) {
        if (one.recs[i].block != two.recs[i].block ||
            one.recs[i].disk != two.recs[i].disk ||
            one.recs[i].page != two.recs[i].page ||
            one.recs[i].sector != two.recs[i].sector ||
            memcmp(one.recs[i].digest, two.recs[i].digest,
                   DEDUP_DIGEST_LEN)) {
            abort();
        }
    }
    return 0;
}
