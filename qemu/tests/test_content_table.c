/*
 * Guest pages by what they hold
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "test.h"
#include "content-table.h"

#define TEST_GROUP "content-table"
#define PAGES 300000

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185ULL;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44dULL;
    return x ^ x >> 33;
}

typedef struct Seen {
    unsigned n;
    uint64_t sum;
} Seen;

static void see(void *opaque, uint32_t page)
{
    Seen *s = opaque;

    s->n++;
    s->sum += page;
}

static Seen take(DedupContentTable *t, uint64_t hash)
{
    Seen s = { 0 };

    dedup_content_take(t, hash, see, &s);
    return s;
}

static void each_is_found_once(void)
{
    DedupContentTable *t = dedup_content_new(PAGES);

    CHECK(t);
    for (uint32_t i = 0; i < PAGES; i++) {
        CHECK(dedup_content_add(t, mix(i), i));
    }
    CHECK(dedup_content_pages(t) == PAGES);
    CHECK(dedup_content_bytes(t) <= dedup_content_bound(PAGES));
    for (uint32_t i = 0; i < PAGES; i++) {
        Seen s = take(t, mix(i));

        CHECK(s.n == 1 && s.sum == i);
        CHECK(take(t, mix(i + PAGES)).n == 0);
        CHECK(take(t, mix(i)).n == 0);
    }
    CHECK(dedup_content_pages(t) == 0);
    dedup_content_free(t);
}

static void pages_with_the_same_bytes(void)
{
    DedupContentTable *t = dedup_content_new(PAGES);

    CHECK(t);
    for (uint32_t i = 0; i < PAGES; i++) {
        CHECK(dedup_content_add(t, mix(i % 1000), i));
    }
    for (uint32_t i = 0; i < 1000; i += 2) {
        CHECK(take(t, mix(i)).n == PAGES / 1000);
    }
    CHECK(dedup_content_pages(t) == PAGES / 2);
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK(take(t, mix(i)).n == (i % 2 ? PAGES / 1000 : 0));
    }
    dedup_content_free(t);
}

static void one_head_for_all(void)
{
    DedupContentTable *t = dedup_content_new(1);

    CHECK(t);
    for (uint32_t i = 0; i < 9; i++) {
        CHECK(dedup_content_add(t, (uint64_t)(i % 3) << 32, i));
    }
    CHECK(take(t, 1ULL << 32).sum == 1 + 4 + 7);
    CHECK(take(t, 2ULL << 32).sum == 2 + 5 + 8);
    CHECK(dedup_content_pages(t) == 3);
    CHECK(take(t, 0).sum == 0 + 3 + 6);
    CHECK(dedup_content_add(t, 5, 17) && take(t, 5).sum == 17);
    dedup_content_free(t);
}

static void bounds(void)
{
    DedupContentTable *t;
    uint32_t n = 0;

    CHECK(!dedup_content_new(0));
    CHECK(!dedup_content_new(DEDUP_CONTENT_MAX_PAGES + 1));
    /* 16 bytes a page at most: 4 MiB for each GiB of memory */
    CHECK(dedup_content_bound(1 << 18) <= (4 << 20) + 64);
    t = dedup_content_new(100);
    CHECK(t);
    while (dedup_content_add(t, mix(n), n)) {
        n++;
    }
    CHECK(n >= 100 && dedup_content_bytes(t) <= dedup_content_bound(100));
    dedup_content_free(t);
    dedup_content_free(NULL);
}

int main(void)
{
    RUN(each_is_found_once);
    RUN(pages_with_the_same_bytes);
    RUN(one_head_for_all);
    RUN(bounds);
    return test_status;
}
