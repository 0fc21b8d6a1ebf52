/*
 * Hints of the source: coding, what the destination takes, what it ignores
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "incoming.h"

#define TEST_GROUP "hints"
#define MOST DEDUP_WIRE_MAX_HINTS

static DedupWireHint hints[MOST], seen[MOST];
static unsigned nseen;
static uint8_t memory[RAM_PAGES][4096];
static uint8_t buf[DEDUP_WIRE_MAX_PAYLOAD];

void incoming_queue(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
}

void incoming_answered(uint32_t id, DedupAnswer answer)
{
}

void dedup_fetch_stop(DedupFetch *f)
{
    g_free(f);
}

static int see(void *opaque, const DedupWireHint *h)
{
    if (nseen == MOST) {
        return -2;
    }
    seen[nseen++] = *h;
    return 0;
}

static int decode(const uint8_t *p, size_t len)
{
    /* From a buffer of exactly that size, so that ASan sees a step beyond */
    uint8_t *copy = malloc(len);
    int ret;

    if (len) {
        memcpy(copy, p, len);
    }
    nseen = 0;
    ret = dedup_decode_hints(copy, len, see, NULL);
    free(copy);
    return ret;
}

static void check_round_trip(unsigned n)
{
    size_t len = dedup_encode_hints(buf, hints, n);

    CHECK(len <= DEDUP_WIRE_HINTS_BOUND(n) && len <= DEDUP_WIRE_MAX_PAYLOAD);
    CHECK(decode(buf, len) == 0);
    CHECK(nseen == n);
    for (unsigned i = 0; i < n; i++) {
        CHECK(seen[i].block == hints[i].block &&
              seen[i].disk == hints[i].disk &&
              seen[i].page == hints[i].page &&
              seen[i].sector == hints[i].sector &&
              seen[i].fingerprint == hints[i].fingerprint);
    }
}

static void round_trip(void)
{
    for (int round = 0; round < 500; round++) {
        unsigned n = below(MOST) + 1;
        DedupWireHint h = { 0 };

        for (unsigned i = 0; i < n; i++) {
            if (below(20) == 0) {
                h.disk = below(DEDUP_WIRE_MAX_DISKS);
            }
            if (below(100) == 0 && h.block < DEDUP_WIRE_MAX_BLOCKS - 1) {
                h.block++;
                h.page = 0;
            }
            if (below(4) == 0) {
                h.page += below(1 << 20);
                h.sector = rnd() >> below(64);
            }
            h.fingerprint = below(10) ? below(65535) + 1 : 0;
            hints[i] = h;
            h.page++;
            h.sector += 8;
        }
        SUB(check_round_trip(n));
    }
}

/* Nothing runs on, every context is new, every number is long */
static void extreme(void)
{
    for (unsigned i = 0; i < MOST; i++) {
        hints[i] = (DedupWireHint) {
            .block = i % 2 ? DEDUP_WIRE_MAX_BLOCKS - 1 : 200,
            .disk = DEDUP_WIRE_MAX_DISKS - 1,
            .page = UINT64_MAX - 1,
            .sector = i % 2 ? UINT64_MAX / 2 : (uint64_t)INT64_MAX + 1,
            .fingerprint = UINT16_MAX,
        };
    }
    SUB(check_round_trip(MOST));
}

/* As the header promises: 2 bytes in a long run, about 8 alone */
static void size(void)
{
    for (unsigned i = 0; i < MOST; i++) {
        hints[i] = (DedupWireHint) { 0, 0, i, 8 * i, 1 };
    }
    CHECK(dedup_encode_hints(buf, hints, MOST) < 2 * MOST + 16);
    for (unsigned i = 0; i < MOST; i++) {
        hints[i].page = 3 * i;
        hints[i].sector = below(1ull << 31);    /* 1 TiB */
    }
    CHECK(dedup_encode_hints(buf, hints, MOST) < 9 * MOST);
}

static void truncated(void)
{
    size_t len;

    for (unsigned i = 0; i < 10; i++) {
        hints[i] = (DedupWireHint) { 0, 0, 1000 + i, 8 * i, i + 1 };
    }
    len = dedup_encode_hints(buf, hints, 10);
    for (size_t cut = 1; cut < len; cut++) {
        CHECK(decode(buf, cut) == -1);
    }
}

static void hostile(void)
{
    uint8_t *p;

    CHECK(decode(buf, 0) == 0 && nseen == 0);
    /* No context, no pages, more pages than are permitted */
    p = dedup_put_varint(buf, 1 << 2);
    CHECK(decode(buf, p - buf) == -1);
    static const struct {
        uint64_t head, block, disk;
    } bad[] = {
        { 1, 0, 0 },
        { (MOST + 1) << 2 | 1, 0, 0 },
        { UINT64_MAX & ~2, 0, 0 },
        { 1 << 2 | 1, DEDUP_WIRE_MAX_BLOCKS, 0 },
        { 1 << 2 | 1, 0, DEDUP_WIRE_MAX_DISKS },
        { 1 << 2 | 1, UINT64_MAX, 0 },
        { 1 << 2 | 3, 0, 0 },           /* and a fingerprint of 0 */
    };
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        p = dedup_put_varint(buf, bad[i].head);
        p = dedup_put_varint(p, bad[i].block);
        p = dedup_put_varint(p, bad[i].disk);
        p = dedup_put_varint(p, 0);
        p = dedup_put_zigzag(p, 0);
        p = dedup_put_be(p, 0, 2);
        CHECK(decode(buf, p - buf) == -1 && nseen == 0);
    }
    /* The limit counts all runs of an element */
    p = buf;
    for (int i = 0; i < 2; i++) {
        p = dedup_put_varint(p, (MOST / 2 + i) << 2 | 1);
        p = dedup_put_be(p, 0, 4);
    }
    CHECK(decode(buf, p - buf) == -1);
    for (int round = 0; round < 20000; round++) {
        unsigned len = below(64);

        for (unsigned i = 0; i < len; i++) {
            buf[i] = rnd();
        }
        decode(buf, len);
        CHECK(nseen <= MOST);
    }
}

/* At the destination */

static void begin(void)
{
    memset(incoming_words, 0, sizeof(incoming_words));
    incoming_memory(memory);
    CHECK(incoming_setup() == 0);
}

static int disks(const char *list, size_t len)
{
    return incoming_element(DEDUP_ELEMENT_HINT_DISKS, (uint8_t *)list, len);
}

#define LIST(list) disks(list, sizeof(list) - 1)

static int hint(DedupWireHint h)
{
    uint8_t one[DEDUP_WIRE_HINTS_BOUND(1)];

    return incoming_element(DEDUP_ELEMENT_HINTS, one,
                            dedup_encode_hints(one, &h, 1));
}

/* Nothing that was sent fails the migration */
static void end(uint64_t taken, bool error)
{
    DedupIncomingInfo *info;

    CHECK(dedup_incoming_finish() == 0);
    dedup_incoming_cleanup();
    info = dedup_incoming_query();
    CHECK(info->hint_pages == taken && !info->hint_error == !error);
    qapi_free_DedupIncomingInfo(info);
}

static void taken(void)
{
    begin();
    CHECK(LIST("\2\5/vdz0\5/vda0") == 0);
    for (unsigned i = 0; i < 10; i++) {
        hints[i] = (DedupWireHint) { 0, 1, 20 + i, 800 + 8 * i, i };
    }
    CHECK(incoming_element(DEDUP_ELEMENT_HINTS, buf,
                           dedup_encode_hints(buf, hints, 10)) == 0);
    /* Of a disk, and of memory, that is not here */
    CHECK(hint((DedupWireHint) { 0, 0, 40, 8, 1 }) == 0);
    CHECK(hint((DedupWireHint) { 1, 1, 3, 8, 1 }) == 0);
    for (unsigned i = 0; i < RAM_PAGES; i++) {
        DedupHint *h = &incoming_words[i];

        if (i >= 20 && i < 30) {
            CHECK(h->slot == INCOMING_SLOT && h->sector == 640 + 8 * i &&
                  h->fingerprint == i - 20);
        } else {
            CHECK(!h->slot);
        }
    }
    SUB(end(10, false));
}

static void ignored(void)
{
    static const DedupWireHint bad[] = {
        { 2, 0, 0, 8, 1 },              /* block, page, disk, place */
        { 0, 0, RAM_PAGES, 8, 1 },
        { 0, 0, UINT64_MAX, 8, 1 },
        { 0, 1, 9, 8, 1 },
        { 0, 0, 9, UINT64_MAX, 1 },
        { 0, 0, 5, 8, 1 },              /* came before */
        { 0, 0, 0, 8, 1 },
    };

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        SUB(begin());
        CHECK(LIST("\1\5/vda0") == 0);
        CHECK(hint((DedupWireHint) { 0, 0, 5, 8, 1 }) == 0);
        CHECK(hint(bad[i]) == 0);
        /* Neither is what follows */
        CHECK(hint((DedupWireHint) { 0, 0, 50, 8, 1 }) == 0);
        CHECK(incoming_words[5].slot && !incoming_words[9].slot &&
              !incoming_words[50].slot);
        SUB(end(1, true));
    }
    SUB(begin());                       /* and all begins anew */
    CHECK(LIST("\1\5/vda0") == 0);
    CHECK(hint((DedupWireHint) { 0, 0, 0, 8, 1 }) == 0);
    SUB(end(1, false));
}

static void ignored_disks(void)
{
    static const char *bad[] = {
        "", "\1", "\1\5/vda", "\1\5/vda0x", "\200\5/vda0", "\2\5/vda0",
    };

    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        SUB(begin());
        CHECK(disks(bad[i], strlen(bad[i])) == 0);
        CHECK(hint((DedupWireHint) { 0, 0, 5, 8, 1 }) == 0);
        CHECK(!incoming_words[5].slot);
        SUB(end(0, true));
    }
    SUB(begin());                       /* no list, or two */
    CHECK(hint((DedupWireHint) { 0, 0, 5, 8, 1 }) == 0);
    SUB(end(0, true));
    SUB(begin());
    CHECK(LIST("\1\5/vda0") == 0 && LIST("\1\5/vda0") == 0);
    CHECK(hint((DedupWireHint) { 0, 0, 5, 8, 1 }) == 0);
    SUB(end(0, true));
}

/* As for every element: not before SETUP, not after the end */
static void out_of_place(void)
{
    incoming_memory(memory);
    incoming_greet();
    CHECK(LIST("\1\5/vda0") < 0);
    CHECK(hint((DedupWireHint) { 0, 0, 5, 8, 1 }) < 0);
    SUB(begin());
    dedup_incoming_stop();
    CHECK(hint((DedupWireHint) { 0, 0, 5, 8, 1 }) < 0);
    SUB(end(0, false));
}

int main(void)
{
    RUN(round_trip);
    RUN(extreme);
    RUN(size);
    RUN(truncated);
    RUN(hostile);
    RUN(taken);
    RUN(ignored);
    RUN(ignored_disks);
    RUN(out_of_place);
    return test_status;
}
