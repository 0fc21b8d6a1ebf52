/*
 * Records not answered yet: each page is clean, dirty or outstanding
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "outstanding.h"

#define TEST_GROUP "outstanding"
#define PAGES 300

DedupInject dedup_inject;

static DedupOutstanding o;
static RAMBlock blocks[2];
static DedupRam rams[2];

void dedup_ram_free(DedupRam *dr)
{
    CHECK(false);                               /* none is unplugged then */
}

static bool dirty[2][PAGES];

void dedup_bmap_set(RAMBlock *rb, unsigned long page)
{
    dirty[rb - blocks][page] = true;
}

uint64_t dedup_bmap_set_all(RAMBlock *rb, unsigned long *pages)
{
    uint64_t n = 0;

    for (int i = 0; i < PAGES; i++) {
        if (test_bit(i, pages)) {
            clear_bit(i, pages);
            dirty[rb - blocks][i] = true;
            n++;
        }
    }
    return n;
}

static void begin(void)
{
    memset(dirty, 0, sizeof(dirty));
    memset(rams, 0, sizeof(rams));
    memset(&dedup_inject, 0, sizeof(dedup_inject));
    dedup_outstanding_init(&o);
    for (int i = 0; i < 2; i++) {
        rams[i].rb = &blocks[i];
        rams[i].pages = PAGES;
        rams[i].ids = g_new0(uint32_t, PAGES);
        rams[i].direct = bitmap_new(PAGES);
        rams[i].owed = bitmap_new(PAGES);
        rams[i].index = i;
        g_ptr_array_add(o.rams, &rams[i]);
    }
}

static void end(void)
{
    dedup_outstanding_free(&o);
}

static uint32_t add(int ram, uint64_t page)
{
    uint32_t id = o.next_id;

    return dedup_outstanding_add(&o, &rams[ram], page) ? id : 0;
}

static bool settle(uint32_t id, int *ram, uint64_t *page)
{
    DedupRam *dr = dedup_outstanding_settle(&o, id, page);

    *ram = dr ? dr - rams : -1;
    return dr;
}

static void answer(void)
{
    uint64_t page;
    int ram;

    begin();
    CHECK(add(1, 7) == 1 && o.count == 1);
    CHECK(add(0, 7) == 2 && o.count == 2);
    CHECK(settle(1, &ram, &page) && ram == 1 && page == 7 && o.count == 1);
    /* Twice, never sent, not yet sent, none */
    CHECK(!settle(1, &ram, &page));
    CHECK(!settle(3, &ram, &page));
    CHECK(!settle(UINT32_MAX, &ram, &page));
    CHECK(!settle(0, &ram, &page));
    CHECK(o.count == 1);
    end();
}

static void content_supersedes(void)
{
    uint64_t page;
    int ram;

    begin();
    CHECK(!dedup_outstanding_supersede(&o, &rams[0], 3));
    CHECK(add(0, 3) == 1);
    CHECK(dedup_outstanding_supersede(&o, &rams[0], 3) && o.count == 0);
    CHECK(!dedup_outstanding_supersede(&o, &rams[0], 3));
    CHECK(!settle(1, &ram, &page) && o.count == 0);
    end();
}

/* record -> dirty -> record: the answer to the first says nothing */
static void stale_answer(void)
{
    uint64_t page;
    int ram;

    begin();
    CHECK(add(0, 3) == 1 && add(0, 3) == 2 && o.count == 1);
    CHECK(!settle(1, &ram, &page) && o.count == 1);
    CHECK(settle(2, &ram, &page) && page == 3 && o.count == 0);
    CHECK(!settle(1, &ram, &page));
    /* With the safeguard taken out it does, and that would corrupt */
    CHECK(add(0, 4) == 3 && add(0, 4) == 4);
    dedup_inject.trust_acks = true;
    CHECK(settle(3, &ram, &page) && o.count == 0);
    end();
}

static void resend_from_the_end(void)
{
    begin();
    for (int i = 0; i < 100; i++) {
        CHECK(add(0, i));
    }
    CHECK(dedup_outstanding_resend(&o, 0) == 0 && o.count == 100);
    CHECK(dedup_outstanding_resend(&o, 10) == 10 && o.count == 90);
    for (int i = 0; i < 100; i++) {
        CHECK(dirty[0][i] == (i >= 90));
        CHECK(test_bit(i, rams[0].direct) == (i >= 90));
    }
    /* Goes on where it stopped, passes over what was answered */
    for (uint32_t id = 81; id <= 90; id++) {
        uint64_t page;
        int ram;

        CHECK(settle(id, &ram, &page));
    }
    CHECK(dedup_outstanding_resend(&o, 5) == 5 && o.count == 75);
    CHECK(dirty[0][79] && dirty[0][75] && !dirty[0][74] && !dirty[0][85]);
    /* A record after that is resent first */
    CHECK(add(1, 50) && dedup_outstanding_resend(&o, 1) == 1 && dirty[1][50]);
    CHECK(dedup_outstanding_resend(&o, 1000) == 75 && o.count == 0);
    CHECK(dedup_outstanding_resend(&o, 1) == 0);
    end();
}

static void redirty(void)
{
    begin();
    for (int i = 0; i < 100; i++) {
        CHECK(add(i & 1, i));
    }
    CHECK(dedup_outstanding_resend(&o, 30) == 30);
    CHECK(dedup_outstanding_redirty(&o) == 70 && o.count == 0);
    for (int i = 0; i < 100; i++) {
        CHECK(dirty[i & 1][i]);
        CHECK(!dedup_is_outstanding(&o, &rams[i & 1], i));
    }
    CHECK(dedup_outstanding_redirty(&o) == 0);
    end();
}

/* What was given up says nothing any more, to what comes after it either */
static void given_up(void)
{
    uint64_t page;
    int ram;

    begin();
    CHECK(add(0, 3) == 1 && add(0, 4) == 2 && add(1, 5) == 3);
    CHECK(settle(2, &ram, &page));
    clear_bit(4, rams[0].owed);                 /* it was there: OK */
    CHECK(dedup_outstanding_pay(&o) == 2 && o.count == 0);
    CHECK(dirty[0][3] && !dirty[0][4] && dirty[1][5]);
    CHECK(!settle(1, &ram, &page) && !settle(3, &ram, &page));
    CHECK(!dedup_outstanding_supersede(&o, &rams[0], 3));
    CHECK(dedup_outstanding_resend(&o, 9) == 0);
    CHECK(dedup_outstanding_pay(&o) == 0);
    /* Its page again, and another */
    memset(dirty, 0, sizeof(dirty));
    CHECK(add(0, 3) == 4 && add(0, 6) == 5 && o.count == 2);
    CHECK(!settle(1, &ram, &page));
    CHECK(settle(4, &ram, &page) && page == 3 && o.count == 1);
    clear_bit(3, rams[0].owed);
    CHECK(dedup_outstanding_redirty(&o) == 1 && o.count == 0);
    CHECK(!dirty[0][3] && dirty[0][6] && !dirty[1][5]);
    /* The ring comes around to what was given up: it is not sent for that */
    memset(dirty, 0, sizeof(dirty));
    for (uint32_t i = 0; i <= DEDUP_RING; i++) {
        CHECK(add(0, 7));
    }
    CHECK(o.evicted == 0 && o.count == 1 && !dirty[0][3] && !dirty[0][6]);
    end();
}

/* In pieces: whenever one ends, each page is dirty or outstanding */
static void in_pieces(void)
{
    begin();
    for (int i = 0; i < 100; i++) {
        CHECK(add(i & 1, i));
    }
    for (int left = 100; left; ) {
        unsigned n = dedup_outstanding_resend(&o, 7);

        CHECK(n == MIN(7, left) && o.count == (left -= n));
        for (int i = 0; i < 100; i++) {
            CHECK(dirty[i & 1][i] !=
                  dedup_is_outstanding(&o, &rams[i & 1], i));
        }
    }
    end();
}

static void ids_end(void)
{
    begin();
    CHECK(!dedup_outstanding_add(&o, &rams[0], 1ull << 32));
    CHECK(o.count == 0 && o.next_id == 1);
    end();
}

/* Records beyond the first chunk, in order */
static void many(void)
{
    uint64_t page;
    int ram;

    begin();
    for (uint32_t id = 1; id <= 20000; id++) {
        CHECK(add(id & 1, id % PAGES) == id);
    }
    CHECK(o.count == PAGES);
    for (uint32_t id = 1; id <= 20000 - PAGES; id++) {
        CHECK(!settle(id, &ram, &page));
    }
    for (uint32_t id = 20000 - PAGES + 1; id <= 20000; id++) {
        CHECK(settle(id, &ram, &page) && ram == (int)(id & 1) &&
              page == id % PAGES);
    }
    CHECK(o.count == 0);
    end();
}

/* One that is never answered: the ring comes around to it, and it goes */
static void ring_wraps(void)
{
    uint64_t page;
    int ram;

    begin();
    CHECK(add(0, 5) == 1 && add(1, 6) == 2);
    for (uint32_t id = 3; id <= DEDUP_RING; id++) {
        CHECK(add(0, 7) == id);
    }
    CHECK(o.count == 3 && o.evicted == 0);
    CHECK(add(0, 8) == DEDUP_RING + 1 && o.evicted == 1 && o.count == 3);
    CHECK(dirty[0][5] && test_bit(5, rams[0].direct) && !rams[0].ids[5]);
    CHECK(!settle(1, &ram, &page));
    CHECK(settle(2, &ram, &page) && ram == 1 && page == 6);
    CHECK(settle(DEDUP_RING, &ram, &page) && page == 7);
    CHECK(!settle(DEDUP_RING + 2, &ram, &page) && o.count == 1);
    /* An id of which the place is another's now */
    CHECK(add(1, 9) == DEDUP_RING + 2 && !settle(2, &ram, &page));
    CHECK(dedup_outstanding_redirty(&o) == 2 && o.count == 0 && !o.newest);
    CHECK(dirty[0][8] && dirty[1][9] && !dirty[1][6]);
    end();
}

/* What is outstanding takes time in the end, not what was sent */
static void end_is_short(void)
{
    uint64_t visited = 0;

    begin();
    CHECK(add(0, 5));
    for (uint32_t i = 0; i < DEDUP_RING - 2; i++) {
        CHECK(add(0, 7));
    }
    for (uint32_t id = o.newest; id; visited++) {
        id = o.ring[id % DEDUP_RING / DEDUP_RING_CHUNK]
                   [id % DEDUP_RING_CHUNK].older;
    }
    CHECK(visited == 2 && dedup_outstanding_redirty(&o) == 2);
    end();
    for (unsigned i = 0; i < G_N_ELEMENTS(o.ring); i++) {
        CHECK(!o.ring[i]);
    }
}

/*
 * Random steps against a model that keeps, for each page, the id that counts
 * and whether the page is dirty.  No page is ever neither clean (answered or
 * sent in full), dirty nor outstanding.
 */
static void random_model(void)
{
    for (int round = 0; round < 30; round++) {
        uint32_t want[2][PAGES] = { { 0 } };
        uint64_t count = 0;

        begin();
        for (int step = 0; step < 4000; step++) {
            int ram = below(2), pages = 40, which = below(10), got;
            uint64_t page = below(pages), at;

            if (which < 4) {                            /* record */
                uint32_t id = add(ram, page);

                CHECK(id);
                count += !want[ram][page];
                want[ram][page] = id;
                dirty[ram][page] = false;
            } else if (which < 6) {                     /* content */
                bool was = want[ram][page];

                CHECK(dedup_outstanding_supersede(&o, &rams[ram], page) ==
                      was);
                count -= was;
                want[ram][page] = 0;
                dirty[ram][page] = false;
            } else if (which < 9) {                     /* answer */
                uint32_t id = below(o.next_id + 2);
                bool found = false;

                for (int r = 0; id && r < 2; r++) {
                    for (int p = 0; p < pages; p++) {
                        if (want[r][p] == id) {
                            found = true;
                            ram = r;
                            page = p;
                        }
                    }
                }
                CHECK(settle(id, &got, &at) == found);
                if (found) {
                    CHECK(got == ram && at == page);
                    want[ram][page] = 0;
                    count--;
                }
            } else {                                    /* resend */
                uint64_t n = below(6), left;

                CHECK(dedup_outstanding_resend(&o, n) <= n);
                left = o.count;
                for (int r = 0; r < 2; r++) {
                    for (int p = 0; p < pages; p++) {
                        if (want[r][p] &&
                            !dedup_is_outstanding(&o, &rams[r], p)) {
                            CHECK(dirty[r][p]);
                            want[r][p] = 0;
                            count--;
                        }
                    }
                }
                CHECK(left == count);
            }
            CHECK(o.count == count);
            for (int p = 0; p < pages; p++) {
                CHECK(rams[0].ids[p] == want[0][p]);
                CHECK(rams[1].ids[p] == want[1][p]);
            }
        }
        CHECK(dedup_outstanding_redirty(&o) == count);
        for (int r = 0; r < 2; r++) {
            for (int p = 0; p < PAGES; p++) {
                CHECK(!want[r][p] || dirty[r][p]);
            }
        }
        end();
    }
}

/* The guest said meanwhile that the page is free: its dirty bit is gone */
static void owed_is_paid(void)
{
    uint64_t page;
    uint32_t id;
    int ram;

    begin();
    id = add(0, 7);
    set_bit(7, rams[0].owed);
    CHECK(settle(id, &ram, &page));             /* a NACK */
    memset(dirty, 0, sizeof(dirty));
    CHECK(dedup_outstanding_redirty(&o) == 0 && !dirty[0][7]);
    dedup_outstanding_pay(&o);
    CHECK(dirty[0][7] && !dirty[0][6] && !test_bit(7, rams[0].owed));
    end();
}

/* Its RAM block was unplugged: nothing of it is touched */
static void unplugged(void)
{
    begin();
    CHECK(add(1, 3));
    set_bit(3, rams[1].owed);
    rams[1].gone = true;
    CHECK(dedup_outstanding_redirty(&o) == 1);
    dedup_outstanding_pay(&o);
    CHECK(!dirty[1][3]);
    rams[1].gone = false;                       /* not from the heap */
    end();
}

int main(void)
{
    RUN(answer);
    RUN(content_supersedes);
    RUN(stale_answer);
    RUN(resend_from_the_end);
    RUN(redirty);
    RUN(given_up);
    RUN(in_pieces);
    RUN(ids_end);
    RUN(many);
    RUN(ring_wraps);
    RUN(end_is_short);
    RUN(random_model);
    RUN(owed_is_paid);
    RUN(unplugged);
    return test_status;
}
