/*
 * Post-copy: pages placed from either side while the guest runs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "incoming-queue.h"

#define TEST_GROUP "lazy"

static uint8_t memory[RAM_PAGES][4096];
static uint8_t data[4096], same[4096];

static int record(uint32_t id, uint64_t page)
{
    uint8_t buf[DEDUP_WIRE_RECORDS_BOUND(1)];
    DedupRecord rec = { .page = page, .sector = 8 };

    return incoming_element(DEDUP_ELEMENT_RECORDS, buf,
                            dedup_encode_records(buf, id, &rec, 1));
}

static void place(unsigned i)
{
    dedup_incoming_place(queue_fetch, &queue[i], 1, data);
}

static void content(uint64_t page)
{
    CHECK(postcopy_place_page(NULL, memory[page], same, &blocks[0]) == 0);
}

static void advised(unsigned flags)
{
    nqueue = nanswers = incoming_failures = 0;
    incoming_twice = incoming_ufd_error = 0;
    incoming_hurried = 0;
    multifd = false;
    memset(memory, 0, sizeof(memory));
    memset(received, 0, sizeof(received));
    memset(data, 0x55, sizeof(data));
    memset(same, 0x55, sizeof(same));
    incoming_memory(memory);
    incoming_flags = DEDUP_SETUP_TRACKED | flags;
    CHECK(incoming_setup() == 0);
    CHECK(incoming_epoch(1) == 0);
}

static void begin(void)
{
    advised(DEDUP_SETUP_LAZY);
    CHECK(dedup_incoming_listen() == 0 && dedup_incoming_lazy);
}

static void end(void)
{
    CHECK(incoming_twice == 0);
    dedup_incoming_cleanup();
    CHECK(!dedup_incoming_lazy);
}

static void fetched(void)
{
    begin();
    CHECK(record(1, 3) == 0 && nqueue == 1);
    place(0);
    CHECK(memory[3][0] == 0x55 && received[3]);
    CHECK(nanswers == 1 && answers[0].status == DEDUP_ANSWER_OK);
    CHECK(stat64_get(&dedup_in.lazily) == 1);
    memory[3][0] = 1;                   /* the guest writes */
    content(3);
    place(0);
    CHECK(memory[3][0] == 1);
    CHECK(dedup_incoming_finish() == 0);
    end();
}

static void content_first(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    content(3);
    memory[3][0] = 1;
    CHECK(!dedup_incoming_wanted(queue_fetch, &queue[0]));
    place(0);
    CHECK(memory[3][0] == 1 && nanswers == 0);
    /* And a record that the channel of requested pages has overtaken */
    content(4);
    memory[4][0] = 1;
    CHECK(record(2, 4) == 0 && nqueue == 1);
    CHECK(memory[4][0] == 1 && nanswers == 1 && answers[0].id == 2);
    CHECK(dedup_incoming_finish() == 0);
    end();
}

static void without_safeguard(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    ramblock_recv_bitmap_set_offset(&blocks[0], 3 << 12);
    memory[3][0] = 1;
    dedup_inject.no_atomic_place = true;
    place(0);
    dedup_inject.no_atomic_place = false;
    CHECK(memory[3][0] == 0x55);        /* what the guest wrote is lost */
    end();
}

static void cannot_be_placed(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    incoming_ufd_error = -ENOMEM;
    place(0);
    incoming_ufd_error = 0;
    CHECK(nanswers == 1 && answers[0].status == DEDUP_ANSWER_IO);
    CHECK(stat64_get(&dedup_in.live) == 1);
    content(3);
    CHECK(stat64_get(&dedup_in.live) == 0);
    CHECK(dedup_incoming_finish() == 0);
    end();
}

static void never_came(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    CHECK(dedup_incoming_finish() == -EINVAL && incoming_failures == 1);
    end();
}

static void hurried(void)
{
    begin();
    dedup_incoming_fault(&blocks[0], 3 << 12);
    dedup_incoming_fault(&blocks[1], 3 << 12);
    CHECK(incoming_hurried == 0);
    CHECK(record(7, 3) == 0);
    dedup_incoming_fault(&blocks[0], 3 << 12);
    CHECK(incoming_hurried == 7);
    incoming_hurried = 0;
    dedup_incoming_refuse(queue_fetch, &queue[0], DEDUP_ANSWER_IO);
    dedup_incoming_fault(&blocks[0], 3 << 12);
    dedup_incoming_stop();
    dedup_incoming_fault(&blocks[0], 4 << 12);
    CHECK(incoming_hurried == 0);
    end();
}

/* Interrupted: nothing of ours is placed, nor expected, any more */
static void interrupted(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    dedup_incoming_stop();
    place(0);
    CHECK(memory[3][0] == 0 && !received[3]);
    CHECK(record(2, 4) == -EINVAL);
    content(3);
    CHECK(dedup_incoming_finish() == 0);
    end();
}

/* Records of before post-copy are void */
static void older(void)
{
    advised(DEDUP_SETUP_LAZY);
    CHECK(record(1, 3) == 0);
    dedup_incoming_stop();
    dedup_incoming_discard(blocks[0].idstr, 0, RAM_PAGES << 12);
    CHECK(dedup_incoming_listen() == 0);
    place(0);
    CHECK(memory[3][0] == 0 && nanswers == 0);
    CHECK(record(2, 3) == 0);
    place(0);
    CHECK(memory[3][0] == 0);
    place(1);
    CHECK(memory[3][0] == 0x55);
    end();
}

static void refused(void)
{
    uint8_t buf[256];
    QEMUFile f = { 0 };

    /* Without an agreement */
    advised(0);
    CHECK(dedup_incoming_listen() == 0 && !dedup_incoming_lazy);
    CHECK(record(1, 3) == -EINVAL && dedup_lazy_load(&f, 0) == -EINVAL);
    end();
    /* Nothing but records, on the main channel */
    begin();
    CHECK(dedup_lazy_load(&f, 1) == -EINVAL);
    memset(buf, 0, sizeof(buf));
    CHECK(incoming_element(DEDUP_ELEMENT_EXTENTS, buf, 4) == -EINVAL);
    CHECK(incoming_element(DEDUP_ELEMENT_BATCH, buf, 4) == -EINVAL);
    CHECK(incoming_element(DEDUP_ELEMENT_SETUP, buf,
                           incoming_setup_payload(buf)) == -EINVAL);
    CHECK(record(1, RAM_PAGES) == -EINVAL);
    end();
    /* Before SETUP */
    CHECK(dedup_incoming_listen() == 0 && dedup_lazy_load(&f, 0) == -EINVAL);
}

/* Content, a record and its fetch meet at each page, from three threads */

static int turn;                        /* page all are at */

static void *content_thread(void *opaque)
{
    (void)opaque;
    for (int page = 0; page < RAM_PAGES; page++) {
        while (qatomic_read(&turn) < page) {
            sched_yield();
        }
        postcopy_place_page(NULL, memory[page], same, &blocks[0]);
    }
    return NULL;
}

static void raced(void)
{
    for (int round = 0; round < 100; round++) {
        pthread_t thread;

        begin();
        turn = -1;
        pthread_create(&thread, NULL, content_thread, NULL);
        for (int page = 0; page < RAM_PAGES; page++) {
            unsigned before = nqueue;

            qatomic_set(&turn, page);
            CHECK(record(page + 1, page) == 0);
            if (nqueue > before) {
                place(before);
            }
        }
        pthread_join(thread, NULL);
        CHECK(stat64_get(&dedup_in.live) == 0);
        CHECK(dedup_incoming_finish() == 0);
        end();
    }
}

int main(void)
{
    RUN(fetched);
    RUN(content_first);
    RUN(without_safeguard);
    RUN(cannot_be_placed);
    RUN(never_came);
    RUN(hurried);
    RUN(interrupted);
    RUN(older);
    RUN(refused);
    RUN(raced);
    return test_status;
}
