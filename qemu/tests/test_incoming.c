/*
 * Elements as they arrive: the states of a page, and what is refused
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "incoming-queue.h"

#define TEST_GROUP "incoming"

static uint8_t memory[RAM_PAGES][4096];
static uint8_t data[4096];

static void begin(void)
{
    nqueue = nanswers = 0;
    memset(memory, 0, sizeof(memory));
    memset(received, 0, sizeof(received));
    memset(data, 0x55, sizeof(data));
    incoming_memory(memory);
    CHECK(incoming_setup() == 0);
    CHECK(incoming_epoch(1) == 0);
}

static int send_record(uint32_t id, DedupRecord rec)
{
    uint8_t buf[DEDUP_WIRE_RECORDS_BOUND(1)];

    return incoming_element(DEDUP_ELEMENT_RECORDS, buf,
                            dedup_encode_records(buf, id, &rec, 1));
}

static int record(uint32_t id, uint64_t page)
{
    return send_record(id, (DedupRecord) { .page = page, .sector = 8 });
}

static void place(unsigned i)
{
    dedup_incoming_place(queue_fetch, &queue[i], 1, data);
}

/* On a channel of multifd */
static void content_of(uint32_t epoch, uint64_t page)
{
    dedup_incoming_supersede(&blocks[0], page << 12, epoch);
    memset(memory[page], 0xaa, 4096);
}

static void content(uint64_t page)
{
    content_of(0, page);
}

static void placed(void)
{
    begin();
    CHECK(record(1, 3) == 0 && nqueue == 1 && stat64_get(&dedup_in.live) == 1);
    CHECK(dedup_incoming_wanted(queue_fetch, &queue[0]));
    place(0);
    CHECK(!memcmp(memory[3], data, 4096) && received[3]);
    CHECK(nanswers == 1 && answers[0].id == 1 &&
          answers[0].status == DEDUP_ANSWER_OK);
    CHECK(!dedup_incoming_wanted(queue_fetch, &queue[0]));
    memset(memory[3], 1, 4096);
    place(0);                           /* once only */
    CHECK(memory[3][0] == 1 && nanswers == 1);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

static void content_wins(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    content(3);
    CHECK(!dedup_incoming_wanted(queue_fetch, &queue[0]));
    place(0);
    CHECK(memory[3][0] == 0xaa && nanswers == 0);
    CHECK(stat64_get(&dedup_in.superseded) == 1);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

static void newer_record_wins(void)
{
    begin();
    CHECK(record(1, 3) == 0 && record(2, 3) == 0 && nqueue == 2);
    CHECK(stat64_get(&dedup_in.live) == 1 && stat64_get(&dedup_in.superseded) == 1);
    place(0);
    CHECK(memory[3][0] == 0 && nanswers == 0);
    dedup_incoming_refuse(queue_fetch, &queue[0], DEDUP_ANSWER_IO);
    CHECK(nanswers == 0 && stat64_get(&dedup_in.nack_io) == 0);
    place(1);
    CHECK(memory[3][0] == 0x55 && nanswers == 1 && answers[0].id == 2);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

/* Content of its epoch, or a later one, was ahead of the record */
static void late_record_loses(void)
{
    for (uint32_t epoch = 1; epoch < 3; epoch++) {
        begin();
        content_of(epoch, 3);
        CHECK(record(1, 3) == 0 && nqueue == 0);
        CHECK(stat64_get(&dedup_in.live) == 0 && nanswers == 0);
        CHECK(dedup_incoming_finish() == 0);
        dedup_incoming_cleanup();
    }
    /* Of the epoch before: the record is newer */
    begin();
    content_of(1, 3);
    CHECK(incoming_epoch(2) == 0 && record(1, 3) == 0 && nqueue == 1);
    place(0);
    CHECK(memory[3][0] == 0x55);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
    /* Without the safeguard it overwrites what is newer */
    begin();
    dedup_inject.no_epoch = true;
    content_of(2, 3);
    CHECK(record(1, 3) == 0 && nqueue == 1);
    place(0);
    CHECK(memory[3][0] == 0x55);
    dedup_inject.no_epoch = false;
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

/* What the source must not let happen ends the migration */
static void overtaken(void)
{
    begin();
    CHECK(incoming_epoch(2) == 0 && record(1, 3) == 0);
    place(0);
    content_of(1, 3);
    CHECK(dedup_incoming_finish() == -EINVAL);
    dedup_incoming_cleanup();
    begin();
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

static void epochs_grow(void)
{
    uint8_t buf[8] = { 0 };

    incoming_memory(memory);
    CHECK(incoming_setup() == 0);
    CHECK(record(1, 3) == -EINVAL);             /* of no epoch */
    CHECK(incoming_epoch(0) == -EINVAL);
    CHECK(incoming_epoch(7) == 0);
    CHECK(incoming_epoch(7) == -EINVAL && incoming_epoch(6) == -EINVAL);
    CHECK(incoming_element(DEDUP_ELEMENT_EPOCH, buf, 3) == -EINVAL);
    CHECK(incoming_element(DEDUP_ELEMENT_EPOCH, buf, 5) == -EINVAL);
    dedup_incoming_cleanup();
    /* Without multifd all is in order anyway */
    multifd = false;
    begin();
    CHECK(!ram.epochs && record(1, 3) == 0);
    content(3);
    CHECK(record(2, 3) == 0);
    place(1);
    CHECK(memory[3][0] == 0x55);
    multifd = true;
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

/* Post-copy: what is discarded is not missed, what is not is */
static void discarded(void)
{
    begin();
    CHECK(record(1, 3) == 0 && record(2, 9) == 0);
    dedup_incoming_stop();
    dedup_incoming_discard(blocks[0].idstr, 0, 4 << 12);
    CHECK(stat64_get(&dedup_in.live) == 1);
    CHECK(dedup_incoming_finish() == -EINVAL);
    dedup_incoming_discard(blocks[0].idstr, 8 << 12, UINT64_MAX / 2);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

static void missing(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    dedup_incoming_refuse(queue_fetch, &queue[0], DEDUP_ANSWER_DIGEST);
    CHECK(nanswers == 1 && answers[0].status == DEDUP_ANSWER_DIGEST);
    place(0);                           /* refused is refused */
    CHECK(memory[3][0] == 0 && stat64_get(&dedup_in.live) == 1);
    CHECK(stat64_get(&dedup_in.nack_digest) == 1);
    content(3);
    CHECK(stat64_get(&dedup_in.live) == 0 && stat64_get(&dedup_in.superseded) == 0);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();

    /* Or a record takes its place */
    begin();
    CHECK(record(1, 3) == 0);
    dedup_incoming_refuse(queue_fetch, &queue[0], DEDUP_ANSWER_IO);
    CHECK(record(2, 3) == 0 && stat64_get(&dedup_in.live) == 1);
    place(1);
    CHECK(memory[3][0] == 0x55);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

/* The guest must not start with a page that never came */
static void incomplete(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    incoming_failures = 0;
    CHECK(dedup_incoming_finish() == -EINVAL);
    CHECK(incoming_failures == 1);              /* the source hears of it */
    dedup_incoming_cleanup();
    begin();
    CHECK(record(1, 3) == 0);
    dedup_incoming_refuse(queue_fetch, &queue[0], DEDUP_ANSWER_IO);
    CHECK(dedup_incoming_finish() == -EINVAL);
    dedup_incoming_cleanup();
}

static void stopped(void)
{
    begin();
    CHECK(record(1, 3) == 0);
    dedup_incoming_stop();
    dedup_incoming_stop();
    place(0);
    dedup_incoming_refuse(queue_fetch, &queue[0], DEDUP_ANSWER_IO);
    CHECK(!dedup_incoming_wanted(queue_fetch, &queue[0]));
    CHECK(memory[3][0] == 0 && nanswers == 0);
    CHECK(record(2, 4) != 0);
    dedup_incoming_cleanup();
    dedup_incoming_cleanup();
    CHECK(dedup_incoming_finish() == 0);        /* no dedup, no complaint */
}

static void bounds(void)
{
    static const DedupRecord bad[] = {
        { .page = RAM_PAGES }, { .page = UINT64_MAX }, { .block = 2 },
        { .disk = DISKS }, { .sector = INT64_MAX / 512 },
        { .sector = UINT64_MAX },
    };

    for (int i = 0; i < 6; i++) {
        begin();
        CHECK(send_record(1, bad[i]) == -EINVAL && nqueue == 0);
        CHECK(stat64_get(&dedup_in.live) == 0);
        dedup_incoming_cleanup();
    }
    /* Ids grow, begin at 1 and end where the flags begin */
    begin();
    CHECK(record(0, 1) == -EINVAL);
    CHECK(record(DEDUP_MAX_ID + 1, 1) == -EINVAL);
    CHECK(record(5, 1) == 0);
    CHECK(record(5, 2) == -EINVAL && record(4, 2) == -EINVAL);
    CHECK(record(DEDUP_MAX_ID, RAM_PAGES - 1) == 0);
    dedup_incoming_cleanup();
    /* A block without a table: answered, and the source sends the page */
    begin();
    CHECK(send_record(1, (DedupRecord) { .block = 1 }) == 0);
    CHECK(nanswers == 1 && answers[0].status == DEDUP_ANSWER_IO);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

static void too_many(void)
{
    begin();
    queue_fetch = dedup_in.fetch;
    /* Hung storage: superseded records pile up, and are forgotten */
    queue_fetch->backlog = 1 << 20;
    incoming_trimmable = 1 << 20;
    CHECK(record(1, 1) == 0);
    queue_fetch->backlog = 1 << 20;
    CHECK(record(2, 1) == -EINVAL);
    dedup_incoming_cleanup();
}

static void order(void)
{
    uint8_t buf[64] = { 0 };

    incoming_memory(memory);
    CHECK(incoming_element(DEDUP_ELEMENT_RECORDS, buf, 4) == -EINVAL);
    CHECK(incoming_element(DEDUP_ELEMENT_EXTENTS, buf, 4) == -EINVAL);
    begin();
    CHECK(incoming_setup() == -EINVAL);
    CHECK(incoming_element(99, buf, 4) == -EINVAL);
    dedup_incoming_cleanup();
}

/* Every truncation and every flipped bit of SETUP: no crash, no leak */
static void setup_malformed(void)
{
    uint8_t good[256], buf[256];
    size_t len;

    incoming_memory(memory);
    len = incoming_setup_payload(good);
    CHECK(incoming_element(DEDUP_ELEMENT_SETUP, good, len) == -EINVAL);
    for (size_t cut = 0; cut < len; cut++) {
        incoming_greet();
        CHECK(incoming_element(DEDUP_ELEMENT_SETUP, good, cut) == -EINVAL);
        dedup_incoming_cleanup();
        CHECK(!ram.ids);
    }
    for (size_t bit = 0; bit < len * 8; bit++) {
        memcpy(buf, good, len);
        buf[bit / 8] ^= 1 << bit % 8;
        incoming_greet();
        incoming_element(DEDUP_ELEMENT_SETUP, buf, len);
        dedup_incoming_cleanup();
        CHECK(!ram.ids);
    }
    memcpy(buf, good, len);
    incoming_greet();
    CHECK(incoming_element(DEDUP_ELEMENT_SETUP, buf, len + 1) == -EINVAL);
    dedup_incoming_cleanup();
}

/* A version of tomorrow: every record is refused, nothing else happens */
static void unknown_version(void)
{
    uint8_t buf[256];
    size_t len;

    nqueue = nanswers = 0;
    incoming_memory(memory);
    len = incoming_setup_payload(buf);
    buf[1]++;
    incoming_greet();
    CHECK(incoming_element(DEDUP_ELEMENT_SETUP, buf, len) == 0);
    CHECK(record(1, 3) == 0 && record(2, 4) == 0);
    CHECK(nqueue == 0 && nanswers == 2);
    CHECK(answers[1].id == 2 && answers[1].status == DEDUP_ANSWER_IO);
    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
}

static void extents(void)
{
    uint8_t buf[4 + 2 * DEDUP_WIRE_EXTENT_LEN];
    DedupExtent e = { 0, 4096, 8192, 0, 0 };
    uint8_t *p = dedup_put_be(buf, 0, 2);

    p = dedup_put_be(p, 2, 2);
    p = dedup_put_extent(p, &e);
    dedup_put_extent(p, &e);
    begin();
    CHECK(incoming_element(DEDUP_ELEMENT_EXTENTS, buf, sizeof(buf)) == 0);
    for (size_t cut = 0; cut < sizeof(buf); cut++) {
        CHECK(incoming_element(DEDUP_ELEMENT_EXTENTS, buf, cut) == -EINVAL);
    }
    buf[1] = DISKS;
    CHECK(incoming_element(DEDUP_ELEMENT_EXTENTS, buf, sizeof(buf)) ==
          -EINVAL);
    buf[1] = 0;
    buf[sizeof(buf) - 1] = DEDUP_NODE__MAX;
    CHECK(incoming_element(DEDUP_ELEMENT_EXTENTS, buf, sizeof(buf)) ==
          -EINVAL);
    dedup_incoming_cleanup();
}

/* Records of the migration before must not touch this one's pages */
static void two_migrations(void)
{
    DedupFetch *before, *now;

    begin();
    CHECK(record(1, 3) == 0);
    before = queue_fetch;
    dedup_in.fetch = g_new0(DedupFetch, 1);   /* so that @before stays allocated */
    dedup_incoming_cleanup();
    dedup_incoming_place(before, &queue[0], 1, data);
    CHECK(memory[3][0] == 0 && nanswers == 0);
    begin();
    CHECK(record(1, 3) == 0);
    now = queue_fetch;
    CHECK(now != before);
    dedup_incoming_place(before, &queue[0], 1, data);
    CHECK(memory[3][0] == 0 && nanswers == 0);
    place(0);
    CHECK(memory[3][0] == 0x55);
    g_free(before);
    dedup_incoming_cleanup();
}

/* The main loop gets its turn while a source goes on sending */
static void gives_way(void)
{
    uint32_t epoch = 1;
    int64_t start;

    begin();
    shim_yields = 0;
    shim_in_coroutine = true;
    start = g_get_monotonic_time();
    while (shim_yields < 4 && g_get_monotonic_time() - start < 5000000) {
        CHECK(incoming_epoch(++epoch) == 0);
    }
    CHECK(shim_yields == 4);
    /* But not for each element, which costs */
    CHECK(g_get_monotonic_time() - start > 3 * TURN_US);
    shim_in_coroutine = false;
    CHECK(incoming_epoch(++epoch) == 0);
    CHECK(shim_yields == 4);
    dedup_incoming_cleanup();
}

/* From a file there is nobody who could have been greeted */
static void no_migration(void)
{
    uint8_t buf[256];

    incoming_memory(memory);
    state.state = MIGRATION_STATUS_NONE;
    incoming_greet();
    CHECK(incoming_element(DEDUP_ELEMENT_SETUP, buf,
                           incoming_setup_payload(buf)) == -EINVAL);
    state.state = MIGRATION_STATUS_ACTIVE;
    CHECK(!ram.ids);
}

int main(void)
{
    RUN(placed);
    RUN(content_wins);
    RUN(newer_record_wins);
    RUN(late_record_loses);
    RUN(overtaken);
    RUN(epochs_grow);
    RUN(discarded);
    RUN(missing);
    RUN(incomplete);
    RUN(stopped);
    RUN(bounds);
    RUN(too_many);
    RUN(order);
    RUN(setup_malformed);
    RUN(unknown_version);
    RUN(extents);
    RUN(two_migrations);
    RUN(gives_way);
    RUN(no_migration);
    return test_status;
}
