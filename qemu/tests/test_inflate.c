/*
 * Batches as they arrive: placing, order, and what is refused
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "incoming-queue.h"

#define TEST_GROUP "inflate"

static uint8_t memory[RAM_PAGES][4096];
static uint8_t data[DEDUP_BATCH_PAGES][4096];

static void begin(unsigned flags)
{
    nqueue = nanswers = 0;
    memset(memory, 0, sizeof(memory));
    memset(received, 0, sizeof(received));
    for (unsigned i = 0; i < DEDUP_BATCH_PAGES; i++) {
        memset(data[i], i + 1, 4096);
    }
    incoming_memory(memory);
    incoming_flags = flags;
    CHECK(incoming_setup() == 0);
    CHECK(incoming_epoch(1) == 0);
}

static int batch(uint64_t first, unsigned n)
{
    uint64_t pages[DEDUP_BATCH_PAGES];

    for (unsigned i = 0; i < n; i++) {
        pages[i] = first + i;
    }
    return incoming_batch(0, pages, n, data[0]);
}

static void placed(void)
{
    static const uint64_t pages[] = { 0, 5, 6, 63 };

    begin(DEDUP_SETUP_COMPRESS);
    CHECK(incoming_batch(0, pages, 4, data[0]) == 0);
    CHECK(dedup_incoming_sync() == 0);
    for (int i = 0, k = 0; i < RAM_PAGES; i++) {
        bool there = k < 4 && pages[k] == i;

        CHECK(received[i] == there);
        CHECK(!memcmp(memory[i], there ? data[k] : memory[1], 4096));
        k += there;
    }
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

/* More than there are slots, each batch over the same pages */
static void many(void)
{
    begin(DEDUP_SETUP_COMPRESS);
    for (int i = 0; i < 100; i++) {
        memset(data, i, sizeof(data));
        CHECK(batch(0, 64) == 0);
        CHECK(dedup_incoming_sync() == 0);
        CHECK(memory[63][4095] == i && memory[0][0] == i);
    }
    for (int i = 0; i < 100; i++) {
        CHECK(batch(i % 64, 1) == 0);
    }
    CHECK(dedup_incoming_sync() == 0);
    dedup_incoming_cleanup();
}

static void over_a_record(void)
{
    uint8_t buf[DEDUP_WIRE_RECORDS_BOUND(1)];
    DedupRecord rec = { .page = 3, .sector = 8 };

    begin(DEDUP_SETUP_COMPRESS);
    CHECK(incoming_element(DEDUP_ELEMENT_RECORDS, buf,
                           dedup_encode_records(buf, 1, &rec, 1)) == 0);
    CHECK(batch(0, 8) == 0);
    CHECK(dedup_incoming_sync() == 0);
    CHECK(!dedup_incoming_wanted(queue_fetch, &queue[0]));
    dedup_incoming_place(queue_fetch, &queue[0], 1, data[9]);
    CHECK(!memcmp(memory[3], data[3], 4096));
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

/* Content behind the end of a section, where a batch takes its time */
static void content_behind(void)
{
    for (int broken = 0; broken < 2; broken++) {
        dedup_inject.inflate_delay_us = 50000;
        dedup_inject.no_inflate_wait = broken;
        begin(DEDUP_SETUP_COMPRESS);
        CHECK(batch(3, 1) == 0);
        CHECK(dedup_incoming_sync() == 0);
        dedup_incoming_supersede(&blocks[0], 3 << 12, 0);
        memset(memory[3], 0xaa, 4096);
        dedup_inject.no_inflate_wait = false;
        CHECK(dedup_incoming_sync() == 0);
        CHECK(memory[3][0] == (broken ? 1 : 0xaa));
        dedup_inject.inflate_delay_us = 0;
        dedup_incoming_cleanup();
    }
}

static void not_announced(void)
{
    begin(DEDUP_SETUP_TRACKED);
    CHECK(batch(0, 8) == -EINVAL);
    CHECK(dedup_incoming_sync() == 0);
    dedup_incoming_cleanup();
    CHECK(memory[0][0] == 0);
}

static void bounds(void)
{
    static const uint64_t last[] = { RAM_PAGES - 1 };
    static const uint64_t beyond[] = { 1, RAM_PAGES };

    begin(DEDUP_SETUP_COMPRESS);
    CHECK(incoming_batch(1, last, 1, data[0]) == 0);        /* "rom" */
    CHECK(incoming_batch(2, last, 1, data[0]) == -EINVAL);
    CHECK(incoming_batch(65535, last, 1, data[0]) == -EINVAL);
    CHECK(incoming_batch(0, beyond, 2, data[0]) == -EINVAL);
    CHECK(dedup_incoming_sync() == 0);
    CHECK(memory[1][0] == 0);
    dedup_incoming_cleanup();
}

/* What is wrong inside is found by a thread, and does not go away */
static void bad_frame(void)
{
    uint8_t buf[512], junk[300] = { 0x28, 0xb5, 0x2f, 0xfd, 1 };
    DedupBatch b = { .n = 2, .pages = { 1, 2 }, .len = sizeof(junk) };
    size_t len = dedup_batch_header(buf, &b);

    begin(DEDUP_SETUP_COMPRESS);
    g_assert(len < 100);
    memcpy(buf + len, junk, sizeof(junk));
    CHECK(incoming_element(DEDUP_ELEMENT_BATCH, buf, len + sizeof(junk)) ==
          0);
    CHECK(dedup_incoming_sync() == -EINVAL);
    CHECK(batch(0, 1) == -EINVAL);
    CHECK(dedup_incoming_sync() == -EINVAL);
    dedup_incoming_cleanup();
    CHECK(!received[1] && memory[1][0] == 0 && memory[0][0] == 0);
    /* The next migration knows nothing of it */
    begin(DEDUP_SETUP_COMPRESS);
    CHECK(batch(0, 1) == 0 && dedup_incoming_sync() == 0);
    CHECK(memory[0][0] == 1);
    dedup_incoming_cleanup();
}

static void cut_off(void)
{
    uint8_t all[6 + 4];
    QEMUFile f = { .p = all, .end = all + sizeof(all) };

    begin(DEDUP_SETUP_COMPRESS);
    dedup_put_be(all, DEDUP_ELEMENT_BATCH, 2);
    dedup_put_be(all + 2, DEDUP_BATCH_PAYLOAD, 4);
    CHECK(dedup_incoming_load(&f) < 0);
    f = (QEMUFile) { .p = all, .end = all + sizeof(all) };
    dedup_put_be(all + 2, DEDUP_BATCH_PAYLOAD + 1, 4);
    CHECK(dedup_incoming_load(&f) == -EINVAL && f.p == all + 6);
    /* No other element may be as long */
    f = (QEMUFile) { .p = all, .end = all + sizeof(all) };
    dedup_put_be(all, DEDUP_ELEMENT_RECORDS, 2);
    dedup_put_be(all + 2, DEDUP_BATCH_PAYLOAD, 4);
    CHECK(dedup_incoming_load(&f) == -EINVAL && f.p == all + 6);
    dedup_incoming_cleanup();
}

/* It ends while batches wait */
static void ended(void)
{
    for (int i = 0; i < 20; i++) {
        begin(DEDUP_SETUP_COMPRESS);
        CHECK(batch(0, 64) == 0);
        CHECK(batch(0, 64) == 0);
        dedup_incoming_cleanup();
        memset(memory, 0xee, sizeof(memory));
        for (int k = 0; k < RAM_PAGES; k++) {
            CHECK(memory[k][i] == 0xee);
        }
    }
}

static void figures(void)
{
    DedupIncomingInfo *info;

    begin(DEDUP_SETUP_COMPRESS);
    CHECK(batch(0, 60) == 0 && batch(60, 4) == 0);
    CHECK(dedup_incoming_sync() == 0);
    info = dedup_incoming_query();
    CHECK(info->compressed_pages == 64 && info->compression_threads);
    CHECK(info->compressed_bytes > 28 && info->compressed_bytes < 4096);
    g_free(info);
    dedup_incoming_cleanup();
}

int main(void)
{
    RUN(placed);
    RUN(many);
    RUN(over_a_record);
    RUN(content_behind);
    RUN(not_announced);
    RUN(bounds);
    RUN(bad_frame);
    RUN(cut_off);
    RUN(ended);
    RUN(figures);
    return test_status;
}
