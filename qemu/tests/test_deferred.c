/*
 * Deferred pages: none may be forgotten, even if its hint goes
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "deferred.h"

#define TEST_GROUP "deferred"
#define PAGES 1000
#define SECOND 1000000

DedupInject dedup_inject;

static DedupDeferred d;
static RAMBlock block;
static DedupRam ram;
static bool dirty[PAGES];
static uint64_t hints[PAGES];

void dedup_bmap_set(RAMBlock *rb, unsigned long page)
{
    (void)rb;
    dirty[page] = true;
}

bool dedup_hint_get(DedupRam *dr, uint64_t page, DedupHint *hint)
{
    (void)dr;
    hint->word = hints[page];
    return hint->word;
}

void dedup_hint_drop(DedupRam *dr, uint64_t page, uint64_t word)
{
    (void)dr;
    if (hints[page] == word) {
        hints[page] = 0;
    }
}

static void begin(void)
{
    memset(dirty, 0, sizeof(dirty));
    memset(&ram, 0, sizeof(ram));
    ram.rb = &block;
    ram.pages = PAGES;
    ram.direct = bitmap_new(PAGES);
    ram.waiting = bitmap_new(PAGES);
    for (int i = 0; i < PAGES; i++) {
        hints[i] = i + 1;
    }
    dedup_deferred_init(&d);
}

static void end(void)
{
    dedup_deferred_free(&d);
    g_free(ram.direct);
    g_free(ram.waiting);
}

/* The scan comes to a page whose hint is stale: did it wait? */
static bool scan(uint64_t page, int64_t now)
{
    dirty[page] = false;
    return dedup_deferred_add(&d, &ram, page, hints[page], now);
}

static void new_hint_ends_it(void)
{
    begin();
    CHECK(scan(5, 0) && d.count == 1);
    dedup_deferred_review(&d, SECOND);
    CHECK(!dirty[5]);
    hints[5] = 7777;
    dedup_deferred_review(&d, SECOND + 20000);
    CHECK(dirty[5] && !test_bit(5, ram.direct));
    dedup_deferred_done(&d, &ram, 5, true);
    CHECK(d.count == 0 && d.paid == 1);
    end();
}

static void time_ends_it(void)
{
    begin();
    CHECK(scan(5, 0));
    dedup_deferred_review(&d, 10 * SECOND);
    CHECK(dirty[5] && test_bit(5, ram.direct) && hints[5] == 0);
    dedup_deferred_done(&d, &ram, 5, false);
    CHECK(d.count == 0 && d.expired == 1);
    end();
}

static void release(void)
{
    begin();
    for (int i = 0; i < 50; i++) {
        CHECK(scan(i, 0));
    }
    dedup_deferred_done(&d, &ram, 7, false);
    /* the oldest ones first */
    CHECK(dedup_deferred_give_up(&d, 10) == 10 && d.count == 39);
    for (int i = 0; i < 50; i++) {
        CHECK(dirty[i] == (i < 11 && i != 7));
    }
    /* but none that has been written back */
    hints[11] = 7777;
    CHECK(dedup_deferred_give_up(&d, 3) == 3 && d.count == 36);
    CHECK(!dirty[11] && dirty[12] && dirty[14] && !dirty[15]);
    CHECK(dedup_deferred_release(&d) == 36 && d.count == 0);
    for (int i = 0; i < 50; i++) {
        CHECK(dirty[i] == (i != 7));
        CHECK(test_bit(i, ram.direct) == (i != 7));
    }
    CHECK(dedup_deferred_release(&d) == 0);
    end();
}

static void only_while_it_pays(void)
{
    unsigned waiting = 0;

    begin();
    for (int i = 0; i < PAGES; i++) {
        waiting += scan(i, 0);
    }
    CHECK(waiting > 0 && waiting < PAGES && d.count == waiting);
    for (int i = 0; i < PAGES; i++) {
        dedup_deferred_done(&d, &ram, i, false);
    }
    dedup_deferred_review(&d, 10 * SECOND);
    CHECK(d.count == 0 && !scan(1, 10 * SECOND));
    end();
}

/*
 * Written back, so that it becomes dirty; written to again before the scan
 * comes to it, so that the new hint is stale as well.
 */
static void stale_twice(bool switchover)
{
    begin();
    CHECK(scan(5, 0));
    hints[5] = 7777;
    dedup_deferred_review(&d, SECOND);
    CHECK(dirty[5]);
    if (scan(5, SECOND)) {
        if (switchover) {
            dedup_deferred_release(&d);
        } else {
            dedup_deferred_review(&d, 20 * SECOND);
        }
        CHECK(dirty[5]);
    }
    end();
}

static void stale_twice_then_time(void)
{
    stale_twice(false);
}

static void stale_twice_then_switchover(void)
{
    stale_twice(true);
}

/*
 * Random steps.  A page is never neither sent since it was written to, nor
 * dirty, nor due to be made dirty by review() in the end or by release().
 */
static void random_model(void)
{
    for (int round = 0; round < 200; round++) {
        bool unsent[PAGES] = { false };
        uint64_t word = 1 << 20;
        int64_t now = 0;

        begin();
        for (int step = 0; step < 2000; step++) {
            uint64_t page = below(40);

            now += below(20000);
            switch (below(7)) {
            case 0:                             /* the guest writes to it */
                unsent[page] = dirty[page] = true;
                break;
            case 1:                             /* it is written back */
                hints[page] = ++word;
                break;
            case 2:
                dedup_deferred_review(&d, now);
                break;
            case 3:                             /* the link is idle */
                dedup_deferred_give_up(&d, below(5));
                break;
            default:                            /* the scan comes to it */
                if (!dirty[page]) {
                    break;
                }
                dirty[page] = false;
                if (!test_and_clear_bit(page, ram.direct) && below(2) &&
                    dedup_deferred_add(&d, &ram, page, hints[page], now)) {
                    break;
                }
                dedup_deferred_done(&d, &ram, page, below(2));
                unsent[page] = false;
                break;
            }
        }
        if (round % 2) {
            dedup_deferred_review(&d, now + 10 * SECOND);
        } else {
            dedup_deferred_release(&d);
        }
        for (int i = 0; i < 40; i++) {
            CHECK(!unsent[i] || dirty[i]);
        }
        end();
    }
}

int main(void)
{
    RUN(new_hint_ends_it);
    RUN(time_ends_it);
    RUN(release);
    RUN(only_while_it_pays);
    RUN(stale_twice_then_time);
    RUN(stale_twice_then_switchover);
    RUN(random_model);
    return test_status;
}
