/*
 * Sorted extents against an array that knows each sector
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "qemu/osdep.h"
#include "dedup-int.h"

#define TEST_GROUP "extents"
#define UNIT 512
#define SECTORS 400

/* What is at a sector: nothing, or a place */
typedef struct Place {
    uint64_t host;
    uint16_t depth;
    uint8_t node;
    bool there;
} Place;

static Place model[SECTORS];
static DedupExtents x;
static unsigned leaves;

static bool follows(const Place *a, const Place *b)
{
    return a->there && b->there && a->host + UNIT == b->host &&
           a->depth == b->depth && a->node == b->node;
}

static void begin(void)
{
    memset(model, 0, sizeof(model));
    memset(&x, 0, sizeof(x));
    leaves = 0;
}

static const DedupExtent *nth(unsigned n)
{
    const DedupExtent *e = NULL;
    unsigned leaf = 0, i = 0;

    for (n++; n; n--) {
        e = dedup_extents_nth(&x, &leaf, &i);
    }
    return e;
}

static void add(unsigned at, unsigned n, uint64_t host, uint16_t depth,
                uint8_t node)
{
    DedupExtent e = { (uint64_t)at * UNIT, (uint64_t)n * UNIT, host, depth,
                      node };

    CHECK(dedup_extents_add(&x, &e, &leaves));
    for (unsigned i = 0; i < n; i++) {
        model[at + i] = (Place) { host + (uint64_t)i * UNIT, depth, node,
                                  true };
    }
}

/* Sorted, apart, and as few as can be */
static void check_order(void)
{
    for (unsigned i = 0; i < x.n; i++) {
        CHECK(nth(i)->len > 0);
        if (i) {
            const DedupExtent *a = nth(i - 1), *b = nth(i);

            CHECK(a->start + a->len <= b->start);
            CHECK(a->start + a->len < b->start ||
                  a->host + a->len != b->host || a->depth != b->depth ||
                  a->node != b->node);
        }
    }
}

static void check_find(unsigned at, unsigned n)
{
    const DedupExtent *e = dedup_extents_find(&x, (uint64_t)at * UNIT,
                                              (uint64_t)n * UNIT);
    bool whole = model[at].there;

    for (unsigned i = at + 1; i < at + n; i++) {
        whole = whole && follows(&model[i - 1], &model[i]);
    }
    CHECK(!!e == whole);
    if (e) {
        CHECK(e->start <= (uint64_t)at * UNIT);
        CHECK(e->start + e->len >= (uint64_t)(at + n) * UNIT);
        CHECK(e->host + ((uint64_t)at * UNIT - e->start) == model[at].host);
        CHECK(e->depth == model[at].depth && e->node == model[at].node);
    }
}

static void check_all(void)
{
    SUB(check_order());
    for (unsigned at = 0; at < SECTORS; at++) {
        SUB(check_find(at, 1));
        if (at + 8 <= SECTORS) {
            SUB(check_find(at, 8));
        }
    }
}

static void empty(void)
{
    begin();
    CHECK(!dedup_extents_find(&x, 0, 1));
    CHECK(!dedup_extents_find(&x, UINT64_MAX, 1));
    dedup_extents_free(&x);
}

/* The leaves, and what has them */
static void discarded(void)
{
    GPtrArray *rubbish = g_ptr_array_new_with_free_func(g_free);

    begin();
    for (unsigned i = 0; i < SECTORS / 2; i++) {
        SUB(add(2 * i, 1, (uint64_t)i << 20, 0, 0));
    }
    CHECK(x.nleaves > 0);
    dedup_extents_discard(&x, rubbish);
    CHECK(rubbish->len > 1 && x.n == 0 && x.nleaves == 0 && !x.leaves);
    g_ptr_array_unref(rubbish);
}

static void overlap_kinds(void)
{
    begin();
    SUB(add(100, 100, 1 << 20, 0, 0));
    SUB(add(120, 10, 2 << 20, 0, 0));       /* in the middle: three pieces */
    CHECK(x.n == 3);
    SUB(check_all());
    SUB(add(90, 20, 3 << 20, 1, 0));        /* over the beginning */
    SUB(check_all());
    SUB(add(190, 20, 4 << 20, 0, 1));       /* over the end */
    SUB(check_all());
    SUB(add(120, 10, 5 << 20, 0, 0));       /* exactly one */
    SUB(check_all());
    SUB(add(0, 400, 6 << 20, 0, 0));        /* all */
    CHECK(x.n == 1);
    SUB(check_all());
    dedup_extents_free(&x);
}

/* In whatever order neighbours come, they become one */
static void neighbours_merge(void)
{
    static const unsigned order[][3] = {
        { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
        { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 },
    };

    for (int i = 0; i < 6; i++) {
        begin();
        for (int k = 0; k < 3; k++) {
            unsigned at = order[i][k] * 10;

            SUB(add(at, 10, (1 << 20) + at * UNIT, 2, 1));
        }
        CHECK(x.n == 1);
        SUB(check_all());
        dedup_extents_free(&x);
    }
    /* Neighbours in another node or at another depth do not */
    begin();
    SUB(add(0, 10, 0, 0, 0));
    SUB(add(10, 10, 10 * UNIT, 1, 0));
    SUB(add(20, 10, 20 * UNIT, 1, 1));
    SUB(add(30, 10, 31 * UNIT, 1, 1));
    CHECK(x.n == 4);
    SUB(check_all());
    dedup_extents_free(&x);
}

static void random_model(void)
{
    for (int round = 0; round < 40; round++) {
        begin();
        for (int step = 0; step < 120; step++) {
            unsigned at = below(SECTORS);
            unsigned n = below(below(4) ? 12 : SECTORS) + 1;

            if (at + n > SECTORS) {
                n = SECTORS - at;
            }
            /* Most in place, so that neighbours often go together */
            SUB(add(at, n, (below(3) ? 0 : below(4) << 20) + at * UNIT,
                    below(8) ? 0 : 1, below(8) ? 0 : 2));
            SUB(check_order());
            if (step % 10 == 9) {
                SUB(check_all());
            }
        }
        dedup_extents_free(&x);
    }
}

static void far_end(void)
{
    DedupExtent last = { (uint64_t)INT64_MAX - 4096, 4096, 0, 0, 0 };
    DedupExtent all = { 0, INT64_MAX, 0, 0, 0 };

    begin();
    CHECK(dedup_extents_add(&x, &last, &leaves));
    CHECK(dedup_extents_find(&x, last.start, 4096));
    CHECK(!dedup_extents_find(&x, last.start, 4097));
    CHECK(!dedup_extents_find(&x, last.start + 1, UINT64_MAX));
    CHECK(dedup_extents_add(&x, &all, &leaves));
    CHECK(x.n == 1 && dedup_extents_find(&x, 0, INT64_MAX));
    dedup_extents_free(&x);
}

/* A hostile source must not make us use memory without end */
static void limit(void)
{
    DedupExtent e = { 0, 512, 0, 0, 0 };
    bool more = true;

    begin();
    for (uint64_t i = 0; more && i < (8 << 20); i++) {
        e.start = i * 1024;
        more = dedup_extents_add(&x, &e, &leaves);
    }
    CHECK(!more && leaves == DEDUP_MAX_LEAVES && x.nleaves == leaves);
    CHECK(x.n > (DEDUP_MAX_LEAVES - 1) * DEDUP_EXTENTS_LEAF);
    CHECK(dedup_extents_find(&x, 1024 * 77, 512));
    dedup_extents_free(&x);
}

/* Nor by leaves that hold next to nothing, or by many disks */
static void limit_of_leaves(void)
{
    DedupExtents disks[3] = { 0 };
    bool more = true;

    begin();
    for (uint64_t i = 0; more && i < DEDUP_MAX_LEAVES + 8; i++) {
        DedupExtents *d = &disks[i % 3];
        uint64_t start = i << 24;

        for (unsigned k = 0; more && k <= DEDUP_EXTENTS_LEAF; k++) {
            DedupExtent e = { start + k * 1024, 512, 0, 0, 0 };

            more = dedup_extents_add(d, &e, &leaves);
        }
        if (more) {
            DedupExtent most = { start, DEDUP_EXTENTS_LEAF * 1024, 1, 0, 0 };

            more = dedup_extents_add(d, &most, &leaves);
        }
    }
    CHECK(!more && leaves == DEDUP_MAX_LEAVES);
    CHECK(disks[0].nleaves + disks[1].nleaves + disks[2].nleaves == leaves);
    for (int i = 0; i < 3; i++) {
        dedup_extents_free(&disks[i]);
    }
}

/* What becomes one, or is replaced, counts no more */
static void leaves_counted(void)
{
    DedupExtent all = { 0, INT64_MAX, 0, 0, 0 };

    begin();
    for (uint64_t i = 0; i < 4096; i++) {
        DedupExtent e = { i * 1024, 512, 0, 0, 0 };

        CHECK(dedup_extents_add(&x, &e, &leaves));
        CHECK(leaves == x.nleaves);
    }
    CHECK(dedup_extents_add(&x, &all, &leaves));
    CHECK(leaves == 1 && x.nleaves == 1);
    dedup_extents_free(&x);
}

int main(void)
{
    RUN(empty);
    RUN(discarded);
    RUN(overlap_kinds);
    RUN(neighbours_merge);
    RUN(random_model);
    RUN(far_end);
    RUN(limit);
    RUN(limit_of_leaves);
    RUN(leaves_counted);
    return test_status;
}
