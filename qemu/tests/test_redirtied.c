/*
 * Redirtied pages: when it pays to look for them, and how long a round lasts
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "redirtied.h"

#define TEST_GROUP "redirtied"
#define MS 1000
#define PAGE_NS 3300.0          /* 10 Gbit/s */

static DedupRedirtied r;

static void begin(void)
{
    dedup_redirtied_init(&r, 0);
    dedup_redirtied_round(&r, 1, 0, PAGE_NS);
}

static void look(uint64_t n, uint64_t found)
{
    for (uint64_t i = 0; i < n; i++) {
        dedup_redirtied_looked(&r, i < found);
    }
}

static void first_round_looks(void)
{
    dedup_redirtied_init(&r, 0);
    CHECK(!r.on);
    dedup_redirtied_round(&r, 1, 0, PAGE_NS);
    CHECK(r.on);
}

static void off_after_a_round_in_vain(void)
{
    begin();
    look(100000, 0);
    dedup_redirtied_round(&r, 1, 100 * MS, PAGE_NS);
    CHECK(r.on && r.looked == 100000);  /* the same round */
    dedup_redirtied_round(&r, 2, 200 * MS, PAGE_NS);
    CHECK(!r.on && r.looked == 0);
    dedup_redirtied_round(&r, 3, 300 * MS, PAGE_NS);
    CHECK(r.on);                        /* for one round only */
}

/* A page that is not sent pays for so many looks as fit into its time */
static void cost_against_gain(void)
{
    uint64_t even = 1000 * PAGE_NS / DEDUP_LOOK_NS;

    begin();
    look(even - 1, 1000);
    dedup_redirtied_round(&r, 2, 0, PAGE_NS);
    CHECK(r.on);
    look(even + 1000, 1000);
    dedup_redirtied_round(&r, 3, 0, PAGE_NS);
    CHECK(!r.on);
    dedup_redirtied_round(&r, 4, 0, PAGE_NS);
    look(even + 1000, 1000);
    dedup_redirtied_round(&r, 5, 0, 10 * PAGE_NS);      /* a slower link */
    CHECK(r.on);
    look(100, 50);
    dedup_redirtied_read(&r, 0, 1 * MS);                /* of KVM's log */
    dedup_redirtied_round(&r, 6, 0, PAGE_NS);
    CHECK(!r.on);
}

static void cheap(void)
{
    begin();
    look(1000000 / DEDUP_LOOK_NS - 1, 0);
    dedup_redirtied_round(&r, 2, 0, PAGE_NS);
    CHECK(r.on);
    dedup_redirtied_round(&r, 2, 0, PAGE_NS);
    CHECK(r.on);
}

static void log_is_read_seldom(void)
{
    begin();
    CHECK(!dedup_redirtied_read_due(&r, 49 * MS));
    CHECK(dedup_redirtied_read_due(&r, 50 * MS));
    dedup_redirtied_read(&r, 50 * MS, 51 * MS);
    CHECK(!dedup_redirtied_read_due(&r, 100 * MS));
    CHECK(dedup_redirtied_read_due(&r, 101 * MS));
    /* If it takes long, a twentieth of the time */
    dedup_redirtied_read(&r, 201 * MS, 251 * MS);
    CHECK(!dedup_redirtied_read_due(&r, 1250 * MS));
    CHECK(dedup_redirtied_read_due(&r, 1251 * MS));
    look(100000, 0);
    dedup_redirtied_round(&r, 2, 2000 * MS, PAGE_NS);
    CHECK(!r.on && !dedup_redirtied_read_due(&r, 9000 * MS));
}

static void rounds_do_not_spin(void)
{
    begin();
    look(100000, 100000);               /* nothing is sent */
    CHECK(dedup_redirtied_pause(&r, 2 * MS, PAGE_NS) == 48 * MS);
    CHECK(dedup_redirtied_pause(&r, 50 * MS, PAGE_NS) == 0);
    CHECK(dedup_redirtied_pause(&r, 90 * MS, PAGE_NS) == 0);
    /* A synchronisation that takes long is not begun ten times as often */
    r.sync_us = 20 * MS;
    CHECK(dedup_redirtied_pause(&r, 50 * MS, PAGE_NS) == 150 * MS);
    r.sync_us = 900 * MS;
    CHECK(dedup_redirtied_pause(&r, 0, PAGE_NS) == 330 * MS);
    look(900000, 900000);
    CHECK(dedup_redirtied_pause(&r, 0, PAGE_NS) == 500 * MS);
}

/* A round never lasts longer than if the pages had been sent */
static void no_longer_than_sending(void)
{
    begin();
    look(1000, 100);
    CHECK(dedup_redirtied_pause(&r, 1 * MS, PAGE_NS) == 330);
    begin();
    look(1000, 0);
    CHECK(dedup_redirtied_pause(&r, 1 * MS, PAGE_NS) == 0);
}

int main(void)
{
    RUN(first_round_looks);
    RUN(off_after_a_round_in_vain);
    RUN(cost_against_gain);
    RUN(cheap);
    RUN(log_is_read_seldom);
    RUN(rounds_do_not_spin);
    RUN(no_longer_than_sending);
    return test_status;
}
