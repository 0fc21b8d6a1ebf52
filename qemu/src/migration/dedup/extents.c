/*
 * Sorted extents: guest offset -> place in a node
 *
 * In leaves of up to LEAF extents each, so that one that is added anywhere
 * moves a few KiB at most: they come from the source, in any order it likes.
 * No leaf is empty.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "dedup-int.h"

#define LEAF    DEDUP_EXTENTS_LEAF

/* A place in the order; at the end @leaf is the number of leaves */
typedef struct Pos {
    unsigned leaf, i;
} Pos;

static uint64_t end_of(const DedupExtent *e)
{
    return e->start + e->len;
}

static DedupExtent *at(const DedupExtents *x, Pos pos)
{
    return pos.leaf < x->nleaves ? &x->leaves[pos.leaf]->e[pos.i] : NULL;
}

/* The place after @pos, whether there is an extent or not */
static Pos normal(const DedupExtents *x, Pos pos)
{
    if (pos.leaf < x->nleaves && pos.i == x->leaves[pos.leaf]->n) {
        pos.leaf++;
        pos.i = 0;
    }
    return pos;
}

static Pos next(const DedupExtents *x, Pos pos)
{
    pos.i++;
    return normal(x, pos);
}

static DedupExtent *before(const DedupExtents *x, Pos pos)
{
    if (pos.i) {
        return &x->leaves[pos.leaf]->e[pos.i - 1];
    }
    return pos.leaf ? &x->leaves[pos.leaf - 1]->e[
        x->leaves[pos.leaf - 1]->n - 1] : NULL;
}

/* The first extent that ends after @start */
static Pos seek(const DedupExtents *x, uint64_t start)
{
    unsigned lo = 0, hi = x->nleaves;
    Pos pos = { 0 };

    while (lo < hi) {
        unsigned mid = lo + (hi - lo) / 2;
        DedupExtentLeaf *leaf = x->leaves[mid];

        if (end_of(&leaf->e[leaf->n - 1]) <= start) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    pos.leaf = lo;
    if (lo < x->nleaves) {
        unsigned first = 0, last = x->leaves[lo]->n;

        while (first < last) {
            unsigned mid = first + (last - first) / 2;

            if (end_of(&x->leaves[lo]->e[mid]) <= start) {
                first = mid + 1;
            } else {
                last = mid;
            }
        }
        pos.i = first;
    }
    return pos;
}

static bool touch(const DedupExtent *a, const DedupExtent *b)
{
    return a->start + a->len == b->start && a->host + a->len == b->host &&
           a->depth == b->depth && a->node == b->node;
}

static void add_leaf(DedupExtents *x, unsigned where)
{
    if (x->nleaves == x->alloc) {
        x->alloc = MAX(16, x->alloc * 2);
        x->leaves = g_renew(DedupExtentLeaf *, x->leaves, x->alloc);
    }
    memmove(&x->leaves[where + 1], &x->leaves[where],
            (x->nleaves - where) * sizeof(x->leaves[0]));
    x->leaves[where] = g_new(DedupExtentLeaf, 1);
    x->leaves[where]->n = 0;
    x->nleaves++;
}

static void remove_leaves(DedupExtents *x, unsigned where, unsigned n)
{
    for (unsigned i = where; i < where + n; i++) {
        x->n -= x->leaves[i]->n;
        g_free(x->leaves[i]);
    }
    memmove(&x->leaves[where], &x->leaves[where + n],
            (x->nleaves - where - n) * sizeof(x->leaves[0]));
    x->nleaves -= n;
}

/* @e at @pos; where it is then */
static Pos insert(DedupExtents *x, Pos pos, const DedupExtent *e)
{
    DedupExtentLeaf *leaf;

    if (pos.leaf == x->nleaves && pos.leaf) {   /* to the end of the last */
        pos.leaf--;
        pos.i = x->leaves[pos.leaf]->n;
    } else if (pos.leaf == x->nleaves) {
        add_leaf(x, pos.leaf);
    }
    leaf = x->leaves[pos.leaf];
    if (leaf->n == LEAF) {
        /* In order they come at the end: then leave this one full */
        unsigned keep = pos.i == LEAF ? LEAF : LEAF / 2;
        DedupExtentLeaf *other;

        add_leaf(x, pos.leaf + 1);
        other = x->leaves[pos.leaf + 1];
        other->n = LEAF - keep;
        memcpy(other->e, &leaf->e[keep], other->n * sizeof(leaf->e[0]));
        leaf->n = keep;
        if (pos.i > keep || keep == LEAF) {
            pos.leaf++;
            pos.i -= keep;
            leaf = other;
        }
    }
    memmove(&leaf->e[pos.i + 1], &leaf->e[pos.i],
            (leaf->n - pos.i) * sizeof(leaf->e[0]));
    leaf->e[pos.i] = *e;
    leaf->n++;
    x->n++;
    return pos;
}

/* Remove @n at @pos, all in one leaf; what comes after them */
static Pos delete(DedupExtents *x, Pos pos, unsigned n)
{
    DedupExtentLeaf *leaf = x->leaves[pos.leaf];

    if (n == leaf->n) {
        remove_leaves(x, pos.leaf, 1);
        return pos;
    }
    memmove(&leaf->e[pos.i], &leaf->e[pos.i + n],
            (leaf->n - pos.i - n) * sizeof(leaf->e[0]));
    leaf->n -= n;
    x->n -= n;
    return normal(x, pos);
}

/* How many leaves from @leaf on end at @end or before it */
static unsigned whole_leaves(const DedupExtents *x, unsigned leaf,
                             uint64_t end)
{
    unsigned n = 0;

    while (leaf + n < x->nleaves &&
           end_of(&x->leaves[leaf + n]->e[x->leaves[leaf + n]->n - 1]) <=
           end) {
        n++;
    }
    return n;
}

/* Take [start, end) out of whatever holds it; the place where it belongs */
static Pos punch(DedupExtents *x, uint64_t start, uint64_t end)
{
    Pos pos = seek(x, start);
    DedupExtent *e = at(x, pos);

    if (e && e->start < start) {
        DedupExtent tail = *e;

        e->len = start - e->start;
        pos = next(x, pos);
        if (end_of(&tail) > end) {
            tail.len -= end - tail.start;
            tail.host += end - tail.start;
            tail.start = end;
            return insert(x, pos, &tail);
        }
    }
    while ((e = at(x, pos)) && e->start < end) {
        DedupExtentLeaf *leaf = x->leaves[pos.leaf];
        unsigned n = 0;

        if (!pos.i && (n = whole_leaves(x, pos.leaf, end))) {
            remove_leaves(x, pos.leaf, n);
            continue;
        }
        while (pos.i + n < leaf->n && end_of(&leaf->e[pos.i + n]) <= end) {
            n++;
        }
        if (n) {
            pos = delete(x, pos, n);
            continue;
        }
        e->host += end - e->start;
        e->len -= end - e->start;
        e->start = end;
        break;
    }
    return pos;
}

bool dedup_extents_add(DedupExtents *x, const DedupExtent *e,
                       unsigned *leaves)
{
    unsigned others = *leaves - x->nleaves;
    DedupExtent *prev, *follow, *own;
    Pos pos;

    if (*leaves >= DEDUP_MAX_LEAVES) {
        return false;
    }
    pos = punch(x, e->start, end_of(e));
    prev = before(x, pos);
    if (prev && touch(prev, e)) {
        prev->len += e->len;
        own = prev;
    } else {
        pos = insert(x, pos, e);
        own = at(x, pos);
        pos = next(x, pos);
    }
    /* Found out of order: a page may straddle what is now one */
    follow = at(x, pos);
    if (follow && touch(own, follow)) {
        own->len += follow->len;
        delete(x, pos, 1);
    }
    *leaves = others + x->nleaves;
    return true;
}

const DedupExtent *dedup_extents_find(const DedupExtents *x, uint64_t start,
                                      uint64_t len)
{
    const DedupExtent *e = at(x, seek(x, start));

    return e && e->start <= start && end_of(e) - start >= len ? e : NULL;
}

const DedupExtent *dedup_extents_nth(const DedupExtents *x, unsigned *leaf,
                                     unsigned *i)
{
    Pos pos = normal(x, (Pos) { *leaf, *i });
    const DedupExtent *e = at(x, pos);

    *leaf = pos.leaf;
    *i = pos.i + 1;
    return e;
}

void dedup_extents_free(DedupExtents *x)
{
    for (unsigned i = 0; i < x->nleaves; i++) {
        g_free(x->leaves[i]);
    }
    g_free(x->leaves);
    memset(x, 0, sizeof(*x));
}

void dedup_extents_discard(DedupExtents *x, GPtrArray *rubbish)
{
    for (unsigned i = 0; i < x->nleaves; i++) {
        g_ptr_array_add(rubbish, x->leaves[i]);
    }
    g_ptr_array_add(rubbish, x->leaves);
    memset(x, 0, sizeof(*x));
}
