/*
 * Encoding and decoding of records and answers, see wire.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "wire.h"

void dedup_reader_init(DedupReader *r, const uint8_t *buf, size_t len)
{
    r->p = buf;
    r->end = len ? buf + len : buf;     /* an empty buffer may be NULL */
    r->bad = false;
}

const uint8_t *dedup_get_bytes(DedupReader *r, size_t len)
{
    const uint8_t *p = r->p;

    if (r->bad || len > (size_t)(r->end - r->p)) {
        r->bad = true;
        return NULL;
    }
    r->p += len;
    return p;
}

uint64_t dedup_get_be(DedupReader *r, unsigned bytes)
{
    const uint8_t *p = dedup_get_bytes(r, bytes);
    uint64_t v = 0;

    if (!p) {
        return 0;
    }
    while (bytes--) {
        v = v << 8 | *p++;
    }
    return v;
}

uint64_t dedup_get_varint(DedupReader *r)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        const uint8_t *p = dedup_get_bytes(r, 1);

        if (!p) {
            return 0;
        }
        v |= (uint64_t)(*p & 0x7f) << shift;
        if (!(*p & 0x80)) {
            return v;
        }
    }
    r->bad = true;
    return 0;
}

int64_t dedup_get_zigzag(DedupReader *r)
{
    uint64_t v = dedup_get_varint(r);

    return (int64_t)(v >> 1 ^ -(v & 1));
}

uint8_t *dedup_put_be(uint8_t *p, uint64_t v, unsigned bytes)
{
    while (bytes--) {
        *p++ = v >> (8 * bytes);
    }
    return p;
}

uint8_t *dedup_put_varint(uint8_t *p, uint64_t v)
{
    while (v >= 0x80) {
        *p++ = v | 0x80;
        v >>= 7;
    }
    *p++ = v;
    return p;
}

uint8_t *dedup_put_zigzag(uint8_t *p, int64_t v)
{
    return dedup_put_varint(p, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

#define SECTORS_PER_PAGE (4096 / DEDUP_SECTOR)

size_t dedup_encode_records(uint8_t *out, uint32_t first_id,
                            const DedupRecord *recs, unsigned n)
{
    uint8_t *p = dedup_put_be(out, first_id, 4);
    uint64_t page = 0, sector = 0;
    unsigned i = 0;

    while (i < n) {
        const DedupRecord *r = &recs[i];
        bool fresh = i == 0 || r->block != r[-1].block ||
                     r->disk != r[-1].disk;
        unsigned run = 1;

        while (i + run < n && r[run].block == r->block &&
               r[run].disk == r->disk && r[run].page == r->page + run &&
               r[run].sector == r->sector + (uint64_t)run * SECTORS_PER_PAGE) {
            run++;
        }
        p = dedup_put_varint(p, (uint64_t)run << 1 | fresh);
        if (fresh) {
            p = dedup_put_varint(p, r->block);
            p = dedup_put_varint(p, r->disk);
            page = sector = 0;
        }
        p = dedup_put_zigzag(p, (int64_t)(r->page - page));
        p = dedup_put_zigzag(p, (int64_t)(r->sector - sector));
        for (unsigned k = 0; k < run; k++) {
            memcpy(p, r[k].digest, DEDUP_DIGEST_LEN);
            p += DEDUP_DIGEST_LEN;
        }
        page = r->page + run;
        sector = r->sector + (uint64_t)run * SECTORS_PER_PAGE;
        i += run;
    }
    return p - out;
}

static bool get_context(DedupReader *r, uint32_t *block, uint32_t *disk)
{
    uint64_t b = dedup_get_varint(r);
    uint64_t d = dedup_get_varint(r);

    *block = b;
    *disk = d;
    return b < DEDUP_WIRE_MAX_BLOCKS && d < DEDUP_WIRE_MAX_DISKS;
}

int dedup_decode_records(const uint8_t *buf, size_t len, DedupRecordFunc *fn,
                         void *opaque)
{
    DedupReader r;
    DedupRecord rec = { 0 };
    uint32_t id;
    bool first = true;

    dedup_reader_init(&r, buf, len);
    id = dedup_get_be(&r, 4);

    while (!r.bad && r.p < r.end) {
        uint64_t head = dedup_get_varint(&r);
        uint64_t run = head >> 1;

        if (head & 1) {
            if (!get_context(&r, &rec.block, &rec.disk)) {
                return -1;
            }
            rec.page = rec.sector = 0;
        } else if (first) {
            return -1;
        }
        first = false;
        rec.page += (uint64_t)dedup_get_zigzag(&r);
        rec.sector += (uint64_t)dedup_get_zigzag(&r);
        if (r.bad || run == 0 ||
            run > (size_t)(r.end - r.p) / DEDUP_DIGEST_LEN ||
            run > UINT32_MAX - id) {
            return -1;
        }
        while (run--) {
            int ret;

            memcpy(rec.digest, dedup_get_bytes(&r, DEDUP_DIGEST_LEN),
                   DEDUP_DIGEST_LEN);
            ret = fn(opaque, id++, &rec);
            if (ret) {
                return ret;
            }
            rec.page++;
            rec.sector += SECTORS_PER_PAGE;
        }
    }
    return r.bad ? -1 : 0;
}

size_t dedup_encode_hints(uint8_t *out, const DedupWireHint *hints,
                          unsigned n)
{
    uint8_t *p = out;
    uint64_t page = 0, sector = 0;
    unsigned i = 0;

    while (i < n) {
        const DedupWireHint *h = &hints[i];
        bool fresh = i == 0 || h->block != h[-1].block ||
                     h->disk != h[-1].disk;
        bool prints = h->fingerprint != 0;
        unsigned run = 1;

        while (i + run < n && h[run].block == h->block &&
               h[run].disk == h->disk && h[run].page == h->page + run &&
               h[run].sector == h->sector + (uint64_t)run * SECTORS_PER_PAGE &&
               (h[run].fingerprint != 0) == prints) {
            run++;
        }
        p = dedup_put_varint(p, (uint64_t)run << 2 | prints << 1 | fresh);
        if (fresh) {
            p = dedup_put_varint(p, h->block);
            p = dedup_put_varint(p, h->disk);
            page = sector = 0;
        }
        p = dedup_put_varint(p, h->page - page);
        p = dedup_put_zigzag(p, (int64_t)(h->sector - sector));
        for (unsigned k = 0; k < run && prints; k++) {
            p = dedup_put_be(p, h[k].fingerprint, 2);
        }
        page = h->page + run;
        sector = h->sector + (uint64_t)run * SECTORS_PER_PAGE;
        i += run;
    }
    return p - out;
}

int dedup_decode_hints(const uint8_t *buf, size_t len, DedupHintFunc *fn,
                       void *opaque)
{
    DedupReader r;
    DedupWireHint h = { 0 };
    uint64_t left = DEDUP_WIRE_MAX_HINTS;
    bool first = true;

    dedup_reader_init(&r, buf, len);
    while (!r.bad && r.p < r.end) {
        uint64_t head = dedup_get_varint(&r);
        uint64_t run = head >> 2;

        if (head & 1) {
            if (!get_context(&r, &h.block, &h.disk)) {
                return -1;
            }
            h.page = h.sector = 0;
        } else if (first) {
            return -1;
        }
        first = false;
        h.page += dedup_get_varint(&r);
        h.sector += (uint64_t)dedup_get_zigzag(&r);
        if (r.bad || run == 0 || run > left) {
            return -1;
        }
        left -= run;
        while (run--) {
            int ret;

            h.fingerprint = head & 2 ? dedup_get_be(&r, 2) : 0;
            if (head & 2 && !h.fingerprint) {
                return -1;
            }
            ret = fn(opaque, &h);
            if (ret) {
                return ret;
            }
            h.page++;
            h.sector += SECTORS_PER_PAGE;
        }
    }
    return r.bad ? -1 : 0;
}

uint8_t *dedup_put_extent(uint8_t *p, const DedupExtent *e)
{
    p = dedup_put_be(p, e->start, 8);
    p = dedup_put_be(p, e->len, 8);
    p = dedup_put_be(p, e->host, 8);
    p = dedup_put_be(p, e->depth, 2);
    return dedup_put_be(p, e->node, 1);
}

bool dedup_get_extent(DedupReader *r, DedupExtent *e)
{
    e->start = dedup_get_be(r, 8);
    e->len = dedup_get_be(r, 8);
    e->host = dedup_get_be(r, 8);
    e->depth = dedup_get_be(r, 2);
    e->node = dedup_get_be(r, 1);
    return !r->bad && e->len && e->node < DEDUP_NODE__MAX &&
           e->start <= INT64_MAX - e->len && e->len <= INT64_MAX &&
           e->host <= INT64_MAX - e->len;
}

size_t dedup_encode_answers(uint8_t *out, size_t max, uint32_t backlog,
                            uint32_t rate_kib, const DedupResult *res,
                            unsigned n, unsigned *done)
{
    uint8_t *p = out;
    uint32_t next = 0;
    unsigned i = 0;

    *p++ = DEDUP_MESSAGE_ANSWERS;
    p = dedup_put_be(p, backlog, 4);
    p = dedup_put_be(p, rate_kib, 4);
    while (i < n && (size_t)(p - out) + 15 <= max) {
        unsigned run = 1;

        while (i + run < n && res[i + run].id == res[i].id + run &&
               res[i + run].status == res[i].status) {
            run++;
        }
        p = dedup_put_zigzag(p, (int64_t)res[i].id - next);
        p = dedup_put_varint(p, (uint64_t)run << 2 | res[i].status);
        next = res[i].id + run;
        i += run;
    }
    *done = i;
    return p - out;
}

int dedup_decode_answers(const uint8_t *buf, size_t len, uint32_t *backlog,
                         uint32_t *rate_kib, DedupAnswerFunc *fn,
                         void *opaque)
{
    DedupReader r;
    uint64_t next = 0;

    dedup_reader_init(&r, buf, len);
    *backlog = dedup_get_be(&r, 4);
    *rate_kib = dedup_get_be(&r, 4);
    while (!r.bad && r.p < r.end) {
        int64_t delta = dedup_get_zigzag(&r);
        uint64_t word = dedup_get_varint(&r);
        uint64_t count = word >> 2, first = next + (uint64_t)delta;

        if (r.bad || !count || first > UINT32_MAX ||
            count > UINT32_MAX - first) {
            return -1;
        }
        fn(opaque, first, count, word & 3);
        next = first + count;
    }
    return r.bad ? -1 : 0;
}
