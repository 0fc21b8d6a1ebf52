/*
 * Wire format: what is encoded is decoded, what is malformed is refused
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "wire.h"

#define TEST_GROUP "wire"
#define MAX DEDUP_WIRE_MAX_BATCH

typedef struct Seen {
    DedupRecord recs[MAX];
    uint32_t ids[MAX];
    unsigned n, stop_at;
} Seen;

static Seen seen;
static DedupRecord recs[MAX];
static uint8_t buf[DEDUP_WIRE_MAX_PAYLOAD];

static int see(void *opaque, uint32_t id, const DedupRecord *rec)
{
    Seen *s = opaque;

    if (s->n == MAX) {
        return -2;
    }
    s->ids[s->n] = id;
    s->recs[s->n++] = *rec;
    return s->stop_at && s->n == s->stop_at ? 7 : 0;
}

static int decode(const uint8_t *p, size_t len)
{
    /* From a buffer of exactly that size, so that ASan sees a step beyond */
    uint8_t *copy = malloc(len);
    int ret;

    if (len) {
        memcpy(copy, p, len);
    }
    seen.n = seen.stop_at = 0;
    ret = dedup_decode_records(copy, len, see, &seen);
    free(copy);
    return ret;
}

static void fill_digest(DedupRecord *r)
{
    for (int i = 0; i < DEDUP_DIGEST_LEN; i++) {
        r->digest[i] = rnd();
    }
}

/* Runs of random length, now and then a new context */
static void fill_random(unsigned n)
{
    DedupRecord r = { 0 };

    for (unsigned i = 0; i < n; i++) {
        if (i == 0 || below(20) == 0) {
            r.block = below(DEDUP_WIRE_MAX_BLOCKS);
            r.disk = below(DEDUP_WIRE_MAX_DISKS);
        }
        if (i == 0 || below(4) == 0) {
            r.page = rnd() >> below(64);
            r.sector = rnd() >> below(64);
        }
        fill_digest(&r);
        recs[i] = r;
        r.page++;
        r.sector += 8;
    }
}

static bool same(const DedupRecord *a, const DedupRecord *b)
{
    return a->block == b->block && a->disk == b->disk && a->page == b->page &&
           a->sector == b->sector &&
           !memcmp(a->digest, b->digest, DEDUP_DIGEST_LEN);
}

static void check_round_trip(uint32_t first, unsigned n)
{
    size_t len = dedup_encode_records(buf, first, recs, n);

    CHECK(len <= DEDUP_WIRE_RECORDS_BOUND(n));
    CHECK(len <= DEDUP_WIRE_MAX_PAYLOAD);
    CHECK(decode(buf, len) == 0);
    CHECK(seen.n == n);
    for (unsigned i = 0; i < n; i++) {
        CHECK(seen.ids[i] == first + i);
        CHECK(same(&seen.recs[i], &recs[i]));
    }
}

static void records_round_trip(void)
{
    for (int round = 0; round < 2000; round++) {
        unsigned n = below(MAX) + 1;

        fill_random(n);
        SUB(check_round_trip(below(1u << 30), n));
    }
    fill_random(MAX);
    SUB(check_round_trip(1, MAX));
}

static void records_extreme(void)
{
    static const uint64_t at[] = {
        0, 1, 0x7f, 0x80, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX - 1,
        UINT64_MAX,
    };
    const unsigned n = sizeof(at) / sizeof(at[0]);

    /* Each after each, as page and as sector */
    for (unsigned i = 0; i < n; i++) {
        for (unsigned k = 0; k < n; k++) {
            memset(recs, 0, 2 * sizeof(recs[0]));
            recs[0].page = recs[1].sector = at[i];
            recs[1].page = recs[0].sector = at[k];
            SUB(check_round_trip(UINT32_MAX - 2, 2));
        }
    }
    /* Nothing runs on, every context is new, every number is long */
    for (unsigned i = 0; i < MAX; i++) {
        recs[i].block = i % 2 ? DEDUP_WIRE_MAX_BLOCKS - 1 : 0;
        recs[i].disk = DEDUP_WIRE_MAX_DISKS - 1;
        recs[i].page = i % 2 ? UINT64_MAX / 2 : (uint64_t)INT64_MAX + 1;
        recs[i].sector = ~recs[i].page;
    }
    SUB(check_round_trip(1, MAX));
}

/* As the header promises: about 22 bytes a lone page, 16 in a long run */
static void records_size(void)
{
    size_t len;

    /* A guest of 16 GiB, a disk of 1 TiB, pages in order, nothing adjoining */
    uint64_t page = 0;
    for (unsigned i = 0; i < MAX; i++) {
        memset(&recs[i], 0, sizeof(recs[i]));
        page += 2 + below(64);
        recs[i].page = page;
        recs[i].sector = below(1ull << 31) & ~7ull;
    }
    len = dedup_encode_records(buf, 1, recs, MAX);
    CHECK(len <= 24 * MAX);

    /* Files spread in extents of some MiB: the jumps are shorter */
    page = 0;
    for (unsigned i = 0; i < MAX; i++) {
        page += 2 + below(64);
        recs[i].page = page;
        recs[i].sector = (1ull << 28) + (below(1 << 17) & ~7ull);
    }
    len = dedup_encode_records(buf, 1, recs, MAX);
    CHECK(len <= 22 * MAX);

    for (unsigned i = 0; i < MAX; i++) {
        recs[i].page = (1 << 22) - MAX + i;
        recs[i].sector = (1ull << 31) + 8 * i;
    }
    len = dedup_encode_records(buf, 1, recs, MAX);
    CHECK(len <= 17 * MAX);
    CHECK(len <= 16 * MAX + 32);
}

static void records_truncated(void)
{
    for (int round = 0; round < 60; round++) {
        unsigned n = below(24) + 1;
        size_t len;

        fill_random(n);
        len = dedup_encode_records(buf, 5, recs, n);
        for (size_t cut = 0; cut < len; cut++) {
            int ret = decode(buf, cut);

            /* Refused, or it ended between two runs; never a wrong record */
            CHECK(ret == -1 || (cut >= 4 && seen.n < n));
            CHECK(seen.n <= n);
            for (unsigned i = 0; i < seen.n; i++) {
                CHECK(seen.ids[i] == 5 + i && same(&seen.recs[i], &recs[i]));
            }
        }
    }
}

static void records_stop(void)
{
    size_t len;

    fill_random(100);
    len = dedup_encode_records(buf, 1, recs, 100);
    seen.n = 0;
    seen.stop_at = 42;
    CHECK(dedup_decode_records(buf, len, see, &seen) == 7);
    CHECK(seen.n == 42);
}

static uint8_t *begin(uint32_t id)
{
    return dedup_put_be(buf, id, 4);
}

static void records_hostile(void)
{
    uint8_t *p, *q;

    /* No record at all is not wrong */
    CHECK(decode(buf, begin(1) - buf) == 0 && seen.n == 0);

    /* A run without a context */
    p = dedup_put_varint(begin(1), 1 << 1);
    p = dedup_put_zigzag(p, 0);
    p = dedup_put_zigzag(p, 0);
    memset(p, 0, 16);
    CHECK(decode(buf, p + 16 - buf) == -1 && seen.n == 0);

    /* A run of no page, of more than there are digests, of nearly 2^63 */
    for (int i = 0; i < 4; i++) {
        static const uint64_t runs[] = { 0, 2, 1 << 20, INT64_MAX };

        p = dedup_put_varint(begin(1), runs[i] << 1 | 1);
        p = dedup_put_varint(p, 0);
        p = dedup_put_varint(p, 0);
        p = dedup_put_zigzag(p, 0);
        p = dedup_put_zigzag(p, 0);
        memset(p, 0, 16);
        CHECK(decode(buf, p + 16 - buf) == -1 && seen.n == 0);
    }

    /* Blocks and disks that cannot be; 2^32 must not become 0 */
    for (int i = 0; i < 6; i++) {
        static const uint64_t what[][2] = {
            { DEDUP_WIRE_MAX_BLOCKS, 0 }, { 0, DEDUP_WIRE_MAX_DISKS },
            { 1ull << 32, 0 }, { 0, 1ull << 32 },
            { UINT64_MAX, 0 }, { 0, UINT64_MAX },
        };

        p = dedup_put_varint(begin(1), 1 << 1 | 1);
        p = dedup_put_varint(p, what[i][0]);
        p = dedup_put_varint(p, what[i][1]);
        p = dedup_put_zigzag(p, 0);
        p = dedup_put_zigzag(p, 0);
        memset(p, 0, 16);
        CHECK(decode(buf, p + 16 - buf) == -1 && seen.n == 0);
    }

    /* Ids end at 2^32 - 1 */
    memset(recs, 0, sizeof(recs));
    for (unsigned i = 0; i < 4; i++) {
        recs[i].page = i;
        recs[i].sector = 8 * i;
    }
    q = buf + dedup_encode_records(buf, UINT32_MAX - 3, recs, 4);
    CHECK(decode(buf, q - buf) == -1 || seen.n <= 4);
    for (unsigned i = 1; i < seen.n; i++) {
        CHECK(seen.ids[i] > seen.ids[i - 1]);
    }
    q = buf + dedup_encode_records(buf, UINT32_MAX - 2, recs, 4);
    CHECK(decode(buf, q - buf) == -1);
}

static void varint(void)
{
    uint8_t b[16];
    DedupReader r;

    for (int shift = 0; shift < 64; shift++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t v = (1ull << shift) + d;
            uint8_t *end = dedup_put_varint(b, v);

            CHECK(end - b <= 10);
            dedup_reader_init(&r, b, end - b);
            CHECK(dedup_get_varint(&r) == v && !r.bad && r.p == r.end);
            end = dedup_put_zigzag(b, v);
            CHECK(end - b <= 10);
            dedup_reader_init(&r, b, end - b);
            CHECK(dedup_get_zigzag(&r) == (int64_t)v && !r.bad);
            for (uint8_t *cut = b; cut < end; cut++) {
                dedup_reader_init(&r, b, cut - b);
                dedup_get_varint(&r);
                CHECK(r.bad);
            }
        }
    }
    /* Never ends */
    memset(b, 0xff, sizeof(b));
    dedup_reader_init(&r, b, sizeof(b));
    CHECK(dedup_get_varint(&r) == 0 && r.bad);
    /* Bad once, bad for good */
    CHECK(dedup_get_be(&r, 1) == 0 && !dedup_get_bytes(&r, 0));
}

static void big_endian(void)
{
    static const uint8_t want[] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    uint8_t b[8];
    DedupReader r;

    CHECK(dedup_put_be(b, 0x0102030405060708, 8) == b + 8);
    CHECK(!memcmp(b, want, 8));
    dedup_reader_init(&r, b, 8);
    CHECK(dedup_get_be(&r, 2) == 0x0102 && dedup_get_be(&r, 1) == 3);
    CHECK(dedup_get_be(&r, 4) == 0x04050607 && !r.bad);
    CHECK(dedup_get_be(&r, 2) == 0 && r.bad);
}

static bool extent_ok(DedupExtent e, DedupExtent *out)
{
    uint8_t b[DEDUP_WIRE_EXTENT_LEN];
    DedupReader r;

    if (dedup_put_extent(b, &e) != b + sizeof(b)) {
        return false;
    }
    dedup_reader_init(&r, b, sizeof(b));
    return dedup_get_extent(&r, out);
}

static void extents(void)
{
    const uint64_t max = INT64_MAX;
    DedupExtent e, out;
    uint8_t b[DEDUP_WIRE_EXTENT_LEN];
    DedupReader r;

    for (int i = 0; i < 1000; i++) {
        e = (DedupExtent) { rnd() >> 2, (rnd() >> 2) + 1, rnd() >> 2,
                            rnd(), below(DEDUP_NODE__MAX) };
        CHECK(extent_ok(e, &out));
        CHECK(e.start == out.start && e.len == out.len &&
              e.host == out.host && e.depth == out.depth &&
              e.node == out.node);
    }
    CHECK(extent_ok((DedupExtent) { 0, max, 0, 0, 0 }, &out));
    CHECK(extent_ok((DedupExtent) { max - 1, 1, max - 1, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { 0, 0, 0, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { max, 1, 0, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { 0, 1, max, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { 0, max + 1, 0, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { 0, UINT64_MAX, 0, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { UINT64_MAX, 2, 0, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { 0, 2, UINT64_MAX, 0, 0 }, &out));
    CHECK(!extent_ok((DedupExtent) { 0, 1, 0, 0, DEDUP_NODE__MAX }, &out));
    dedup_put_extent(b, &e);
    for (size_t cut = 0; cut < sizeof(b); cut++) {
        dedup_reader_init(&r, b, cut);
        CHECK(!dedup_get_extent(&r, &out));
    }
}

/* Answers */

static DedupResult results[4000], got[4000];
static unsigned ngot;

static void see_answer(void *opaque, uint32_t first, uint32_t count,
                       DedupAnswer status)
{
    (void)opaque;
    while (count-- && ngot < 4000) {
        got[ngot++] = (DedupResult) { first++, status };
    }
}

static void answers_round_trip(void)
{
    for (int round = 0; round < 500; round++) {
        unsigned n = below(4000) + 1, at = 0;
        uint64_t id = 0;

        for (unsigned i = 0; i < n; i++) {
            id += below(3) ? 1 : below(1000000) + 1;
            results[i].id = id;
            results[i].status = below(5) ? 0 : below(4);
        }
        ngot = 0;
        while (at < n) {
            uint8_t msg[DEDUP_WIRE_MAX_MESSAGE];
            uint32_t backlog, rate;
            unsigned done;
            size_t len = dedup_encode_answers(msg, sizeof(msg), UINT32_MAX,
                                              round, results + at, n - at,
                                              &done);

            CHECK(done > 0 && done <= n - at);
            CHECK(len <= sizeof(msg) && msg[0] == DEDUP_MESSAGE_ANSWERS);
            /* Full, unless it was the last */
            CHECK(at + done == n || len > sizeof(msg) - 15);
            CHECK(dedup_decode_answers(msg + 1, len - 1, &backlog, &rate,
                                       see_answer, NULL) == 0);
            CHECK(backlog == UINT32_MAX && rate == (uint32_t)round);
            at += done;
        }
        CHECK(ngot == n && !memcmp(got, results, n * sizeof(got[0])));
    }
}

static void answers_extreme(void)
{
    static const uint32_t ids[] = { 0, UINT32_MAX - 1, 3, 2, UINT32_MAX / 2 };
    uint8_t msg[DEDUP_WIRE_MAX_MESSAGE];
    uint32_t backlog, rate;
    unsigned done;
    size_t len;

    for (int i = 0; i < 5; i++) {
        results[i] = (DedupResult) { ids[i], DEDUP_ANSWER_IO };
    }
    len = dedup_encode_answers(msg, sizeof(msg), 0, 0, results, 5, &done);
    CHECK(done == 5);
    ngot = 0;
    CHECK(!dedup_decode_answers(msg + 1, len - 1, &backlog, &rate,
                                see_answer, NULL));
    CHECK(ngot == 5 && !memcmp(got, results, 5 * sizeof(got[0])));
    len = dedup_encode_answers(msg, sizeof(msg), 0, 0, results, 0, &done);
    CHECK(done == 0 && len == 9);
    /* A long sequence of answers is one run */
    for (int i = 0; i < 4000; i++) {
        results[i] = (DedupResult) { 100000 + i, DEDUP_ANSWER_OK };
    }
    len = dedup_encode_answers(msg, sizeof(msg), 0, 0, results, 4000, &done);
    CHECK(done == 4000 && len <= 16);
}

static int hostile_answer(uint64_t first, uint64_t count)
{
    uint32_t backlog, rate;
    uint8_t b[64], *p = dedup_put_be(b, 0, 8);

    p = dedup_put_zigzag(p, first);
    p = dedup_put_varint(p, count << 2);
    ngot = 0;
    return dedup_decode_answers(b, p - b, &backlog, &rate, see_answer, NULL);
}

static void answers_hostile(void)
{
    uint32_t backlog, rate;
    uint8_t b[64], *p;

    CHECK(hostile_answer(1, 1) == 0);
    CHECK(hostile_answer(1, 0) == -1);
    CHECK(hostile_answer(-1, 1) == -1);
    CHECK(hostile_answer(UINT32_MAX, 1) == -1);
    CHECK(hostile_answer(UINT32_MAX - 1ull, 1) == 0);
    CHECK(hostile_answer(1ull << 32, 1) == -1);
    CHECK(hostile_answer(1, UINT32_MAX) == -1);
    CHECK(hostile_answer(INT64_MIN, INT64_MAX >> 1) == -1);
    p = dedup_put_be(b, 0, 8);
    p = dedup_put_zigzag(p, 1);
    p = dedup_put_varint(p, 3 << 2);
    p = dedup_put_zigzag(p, -100);
    p = dedup_put_varint(p, 3 << 2);
    CHECK(dedup_decode_answers(b, p - b, &backlog, &rate, see_answer,
                               NULL) == -1);
    for (size_t cut = 0; cut < (size_t)(p - b); cut++) {
        int ret = dedup_decode_answers(b, cut, &backlog, &rate, see_answer,
                                       NULL);

        CHECK(ret == -1 || cut == 8 || cut == 10);
    }
}

int main(void)
{
    RUN(records_round_trip);
    RUN(records_extreme);
    RUN(records_size);
    RUN(records_truncated);
    RUN(records_stop);
    RUN(records_hostile);
    RUN(varint);
    RUN(big_endian);
    RUN(extents);
    RUN(answers_round_trip);
    RUN(answers_extreme);
    RUN(answers_hostile);
    return test_status;
}
