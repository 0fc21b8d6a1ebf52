/* SPDX-License-Identifier: Apache-2.0 */
#include "compact.h"

#define WINDOW (65536ull * LISTING_PAGE)

static uint8_t *put(uint8_t *p, uint64_t value, unsigned bytes)
{
    while (bytes--) {
        *p++ = value;
        value >>= 8;
    }
    return p;
}

static uint8_t *put_varint(uint8_t *p, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        *p++ = value | 0x80;
    }
    *p++ = value;
    return p;
}

/* What has to be the same in a group */
static uint64_t group(const struct listing_extent *e)
{
    return (uint64_t)e->disk << 13 | e->kind << 12 |
           e->offset % LISTING_PAGE;
}

static bool before(const struct listing_extent *a,
                   const struct listing_extent *b)
{
    uint64_t one = group(a), other = group(b);

    return one != other ? one < other : a->offset < b->offset;
}

/* Shell's, with Ciura's gaps: it needs no memory, as qsort() may */
static void sort(struct listing_extent *e, unsigned count)
{
    static const unsigned gaps[] = {
        1750, 701, 301, 132, 57, 23, 10, 4, 1,
    };

    for (unsigned g = 0; g < sizeof(gaps) / sizeof(gaps[0]); g++) {
        for (unsigned i = gaps[g]; i < count; i++) {
            struct listing_extent one = e[i];
            unsigned k = i;

            for (; k >= gaps[g] && before(&one, &e[k - gaps[g]]);
                 k -= gaps[g]) {
                e[k] = e[k - gaps[g]];
            }
            e[k] = one;
        }
    }
}

bool compact_takes(const struct listing_extent *first,
                   const struct listing_extent *e)
{
    return e->gpa - first->gpa < WINDOW;
}

static uint8_t *put_group(uint8_t *p, uint64_t base,
                          const struct listing_extent *e, unsigned count)
{
    uint64_t last = e->offset;

    p = put(p, e->disk, 1);
    p = put(p, e->kind, 1);
    p = put(p, count, 2);
    p = put(p, 0, 4);
    p = put(p, e->offset, 8);
    for (unsigned i = 0; i < count; i++) {
        p = put(p, (e[i].gpa - base) / LISTING_PAGE, 2);
    }
    for (unsigned i = 0; i < count; i++) {
        p = put_varint(p, (e[i].offset - last) / LISTING_PAGE * 2 +
                          (e[i].pages > 1));
        last = e[i].offset;
    }
    for (unsigned i = 0; i < count; i++) {
        if (e[i].pages > 1) {
            p = put_varint(p, e[i].pages - 2);
        }
    }
    return p;
}

uint32_t compact_encode(uint8_t *payload, struct listing_extent *e,
                        unsigned count)
{
    uint64_t base = e[0].gpa;
    uint8_t *p = put(payload, base, 8);
    unsigned n;

    sort(e, count);
    for (unsigned i = 0; i < count; i += n) {
        for (n = 1; i + n < count && group(&e[i]) == group(&e[i + n]); n++) {
            ;
        }
        p = put_group(p, base, e + i, n);
    }
    return p - payload;
}
