/*
 * Sorted extents: guest offset -> place in a node
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "dedup-int.h"

/* Index of the first extent that ends after @start */
static unsigned extents_seek(const DedupExtents *x, uint64_t start)
{
    unsigned lo = 0, hi = x->n;

    while (lo < hi) {
        unsigned mid = lo + (hi - lo) / 2;

        if (x->e[mid].start + x->e[mid].len <= start) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

static bool extents_touch(const DedupExtent *a, const DedupExtent *b)
{
    return a->start + a->len == b->start && a->host + a->len == b->host &&
           a->depth == b->depth && a->node == b->node;
}

/* Make room for @n entries at index @i */
static void extents_open(DedupExtents *x, unsigned i, unsigned n)
{
    if (x->n + n > x->alloc) {
        x->alloc = MAX(64, (x->n + n) * 2);
        x->e = g_renew(DedupExtent, x->e, x->alloc);
    }
    memmove(&x->e[i + n], &x->e[i], (x->n - i) * sizeof(x->e[0]));
    x->n += n;
}

/* Remove @n entries from index @i on */
static void extents_close(DedupExtents *x, unsigned i, unsigned n)
{
    if (n) {
        memmove(&x->e[i], &x->e[i + n],
                (x->n - i - n) * sizeof(x->e[0]));
        x->n -= n;
    }
}

/* Take [start, end) out of whatever holds it; the index where it belongs */
static unsigned extents_punch(DedupExtents *x, uint64_t start, uint64_t end)
{
    unsigned i = extents_seek(x, start), last;
    DedupExtent *e = i < x->n ? &x->e[i] : NULL;

    if (e && e->start < start) {
        uint64_t head = start - e->start;

        if (e->start + e->len > end) {
            extents_open(x, i, 1);
            e = &x->e[i];
            e[1].len -= end - e[1].start;
            e[1].host += end - e[1].start;
            e[1].start = end;
        }
        e->len = head;
        i++;
    }
    for (last = i; last < x->n && x->e[last].start < end; last++) {
        e = &x->e[last];
        if (e->start + e->len > end) {
            e->host += end - e->start;
            e->len -= end - e->start;
            e->start = end;
            break;
        }
    }
    extents_close(x, i, last - i);
    return i;
}

bool dedup_extents_add(DedupExtents *x, const DedupExtent *e)
{
    unsigned i;

    if (x->n >= DEDUP_MAX_EXTENTS) {
        return false;
    }
    i = extents_punch(x, e->start, e->start + e->len);
    if (i > 0 && extents_touch(&x->e[i - 1], e)) {
        x->e[--i].len += e->len;
    } else {
        extents_open(x, i, 1);
        x->e[i] = *e;
    }
    /* Found out of order: a page may straddle what is now one */
    if (i + 1 < x->n && extents_touch(&x->e[i], &x->e[i + 1])) {
        x->e[i].len += x->e[i + 1].len;
        extents_close(x, i + 1, 1);
    }
    return true;
}

const DedupExtent *dedup_extents_find(const DedupExtents *x, uint64_t start,
                                      uint64_t len)
{
    unsigned i = extents_seek(x, start);

    if (i == x->n || x->e[i].start > start ||
        x->e[i].start + x->e[i].len - start < len) {
        return NULL;
    }
    return &x->e[i];
}

void dedup_extents_free(DedupExtents *x)
{
    g_free(x->e);
    x->e = NULL;
    x->n = x->alloc = 0;
}
