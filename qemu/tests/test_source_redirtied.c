/*
 * Redirtied pages: a guest that writes, a log, a dirty bitmap and a
 * destination, at random; what is put off must not be lost
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "qemu/osdep.h"
#include "outstanding.h"
#include "redirtied.h"

#define TEST_GROUP "source-redirtied"
#define PAGES 300

/* Instead of source-int.h, which needs all of QEMU: what is used of it */
#define MIGRATION_DEDUP_SOURCE_INT_H
static struct {
    bool put_off, put_off_last, finished;
    DedupRedirtied redirtied;
    int64_t pass_us;
    uint64_t pass_bytes;
    DedupOutstanding out;
    struct {
        uint64_t deferred_pages, deferred_sent_pages, deferral_checks;
    } fig;
} src;
static struct {
    double mbps;
} state = { 10000 };
static uint64_t clock_us, sent;
static uint32_t rounds;

#define migrate_get_current()               (&state)
#define migration_transferred_bytes()       sent
#define now_us()                            ((int64_t)clock_us)
#define dedup_source_epoch()                rounds
#define kvm_enabled()                       false
#define trace_dedup_source_redirtied(a, b, c)   ((void)0)
#define g_usleep(us)                        (clock_us += (us))

void source_redirtied_round(void);
bool source_put_off(RAMBlock *rb, unsigned long page);
void source_redirtied_finish(void);
void source_redirtied_pass(bool synchronised);
int64_t source_redirtied_pause(void);

#include "../src/migration/dedup/source-redirtied.c"

DedupInject dedup_inject;

static RAMBlock block;
static DedupRam ram;
static bool bitmap[PAGES], log_[PAGES], unused[PAGES];
static unsigned guest[PAGES], there[PAGES];
static unsigned logs_read;

void dedup_ram_free(DedupRam *dr)
{
    abort();                            /* none is unplugged */
}

void dedup_bmap_set(RAMBlock *rb, unsigned long page)
{
    bitmap[page] = true;
}

uint64_t dedup_bmap_set_all(RAMBlock *rb, unsigned long *pages)
{
    uint64_t n = 0;

    for (int i = 0; i < PAGES; i++) {
        if (test_and_clear_bit(i, pages)) {
            bitmap[i] = true;
            n++;
        }
    }
    return n;
}

bool ram_dedup_redirtied(RAMBlock *rb, unsigned long page)
{
    return log_[page];
}

void ram_dedup_read_log(void)
{
    logs_read++;
}

static void begin(void)
{
    memset(&src, 0, sizeof(src));
    memset(&ram, 0, sizeof(ram));
    memset(&dedup_inject, 0, sizeof(dedup_inject));
    memset(log_, 0, sizeof(log_));
    memset(unused, 0, sizeof(unused));
    memset(bitmap, true, sizeof(bitmap));
    memset(there, 0, sizeof(there));
    for (int i = 0; i < PAGES; i++) {
        guest[i] = 1;
    }
    clock_us = 1000000;
    rounds = 1;
    logs_read = 0;
    ram.rb = &block;
    ram.pages = PAGES;
    ram.ids = g_new0(uint32_t, PAGES);
    ram.redirtied = bitmap_new(PAGES);
    block.dedup = &ram;
    dedup_outstanding_init(&src.out);
    g_ptr_array_add(src.out.rams, &ram);
    src.put_off = true;
    dedup_redirtied_init(&src.redirtied, clock_us);
}

static void end(void)
{
    dedup_outstanding_free(&src.out);
}

static void guest_writes(unsigned page)
{
    guest[page]++;
    log_[page] = true;
    unused[page] = false;
}

static void synchronise(void)
{
    source_redirtied_pass(false);
    for (int i = 0; i < PAGES; i++) {
        bitmap[i] |= log_[i];
        log_[i] = false;
    }
    rounds++;
    source_redirtied_pass(true);
}

/* As ram.c: take the page out of the bitmap, then send it or not */
static void scan(unsigned from, unsigned to)
{
    source_redirtied_round();
    for (unsigned i = from; i < to; i++) {
        if (bitmap[i]) {
            bitmap[i] = false;
            if (!source_put_off(&block, i)) {
                there[i] = guest[i];
                sent += 4096;
            }
        }
    }
}

static void scan_some(void)
{
    unsigned from = below(PAGES), to = from + below(100);

    scan(from, MIN(PAGES, to));
}

/* The guest stops; how many pages are wrong at the destination */
static unsigned complete(void)
{
    unsigned wrong = 0;

    synchronise();
    source_redirtied_finish();
    scan(0, PAGES);
    for (int i = 0; i < PAGES; i++) {
        wrong += !unused[i] && there[i] != guest[i];
    }
    return wrong;
}

static void migrate_at_random(unsigned steps)
{
    unsigned hot = 1 + below(40);

    while (steps--) {
        unsigned at = below(PAGES);

        clock_us += below(5000);
        switch (below(8)) {
        case 0:
            synchronise();
            break;
        case 1:                         /* the guest has freed it */
            bitmap[at] = false;
            unused[at] = true;
            break;
        case 2: case 3: case 4:
            guest_writes(below(hot));
            break;
        case 5:
            guest_writes(at);
            break;
        default:
            scan_some();
        }
    }
}

static void nothing_is_lost(void)
{
    uint64_t deferred = 0, later = 0;

    for (int i = 0; i < 500; i++) {
        begin();
        migrate_at_random(200);
        CHECK(complete() == 0);
        deferred += src.fig.deferred_pages;
        later += src.fig.deferred_sent_pages;
        CHECK(src.fig.deferred_sent_pages <= src.fig.deferred_pages);
        CHECK(src.fig.deferred_pages <= src.fig.deferral_checks);
        CHECK(find_next_bit(ram.redirtied, PAGES, 0) == PAGES);
        CHECK(!src.put_off);
        end();
    }
    CHECK(later > 500 && deferred > later);
}

/* The log alone brings back what was put off */
static void log_brings_it_back(void)
{
    for (int i = 0; i < 500; i++) {
        begin();
        for (int steps = 0; steps < 200; steps++) {
            guest_writes(below(20));
            scan_some();
            if (below(8) == 0) {
                synchronise();
            }
        }
        synchronise();
        for (int page = 0; page < PAGES; page++) {
            CHECK(bitmap[page] || !test_bit(page, ram.redirtied));
        }
        end();
    }
}

/* And if it does not, the end does */
static void end_brings_it_back(void)
{
    begin();
    scan(0, PAGES);
    guest_writes(7);
    synchronise();
    guest_writes(7);
    scan(0, PAGES);
    CHECK(src.fig.deferred_pages == 1 && there[7] != guest[7]);
    log_[7] = false;                    /* lost */
    CHECK(complete() == 0);
    CHECK(src.fig.deferred_sent_pages == 1);
    end();
}

static void broken(void)
{
    unsigned wrong = 0;

    for (int i = 0; i < 50; i++) {
        begin();
        dedup_inject.defer_last = true;
        migrate_at_random(200);
        wrong += complete();
        end();
    }
    CHECK(wrong > 0);
}

static void not_wanted(void)
{
    begin();
    src.put_off = false;
    migrate_at_random(200);
    CHECK(complete() == 0 && !src.fig.deferral_checks);
    CHECK(source_redirtied_pause() == 0);
    end();
}

/* No memory for the bitmap of a block: it goes as it is */
static void no_memory(void)
{
    begin();
    g_clear_pointer(&ram.redirtied, g_free);
    migrate_at_random(200);
    CHECK(complete() == 0 && !src.fig.deferral_checks);
    end();
}

/* What the link is left without does not make it look slower */
static void idle_time(void)
{
    begin();
    scan(0, PAGES);
    synchronise();
    for (int i = 0; i < PAGES; i++) {
        guest_writes(i);
    }
    synchronise();
    source_redirtied_pass(false);
    scan(0, 100);
    for (int i = 100; i < PAGES; i++) {
        guest_writes(i);
    }
    scan(100, PAGES);
    CHECK(src.redirtied.found == 200);
    /* 200 pages at 10 Gbit/s take 655 us, the 100 that went half of that */
    CHECK(source_redirtied_pause() == 655 - 327);
    clock_us += 60000;                       /* a round that is long enough */
    CHECK(source_redirtied_pause() == 0);
    end();
}

static void log_is_read(void)
{
    begin();
    scan(0, 1);
    clock_us += 49999;
    dedup_inject.read_log = true;
    source_redirtied_pass(false);
    CHECK(logs_read == 0);
    clock_us++;
    source_redirtied_pass(false);
    source_redirtied_pass(false);
    CHECK(logs_read == 1);
    clock_us += 200000;
    dedup_inject.read_log = false;      /* not with TCG */
    source_redirtied_pass(false);
    CHECK(logs_read == 1);
    end();
}

int main(void)
{
    RUN(nothing_is_lost);
    RUN(log_brings_it_back);
    RUN(end_brings_it_back);
    RUN(broken);
    RUN(not_wanted);
    RUN(no_memory);
    RUN(idle_time);
    RUN(log_is_read);
    return test_status;
}
