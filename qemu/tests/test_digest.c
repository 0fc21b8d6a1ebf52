/*
 * Digests: published vectors, and what the fingerprint must notice
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "digest.h"

#define TEST_GROUP "digest"

static void unhex(uint8_t *out, const char *hex)
{
    for (; *hex; hex += 2) {
        unsigned v;

        sscanf(hex, "%2x", &v);
        *out++ = v;
    }
}

/*
 * vectors_sip128 of SipHash's reference implementation: key 00 .. 0f, the
 * message 00 .. of the length.  Those of 512 and 4096 bytes (i & 0xff) were
 * computed with digest_reference.py, which gives the others, too.
 */
static void siphash_vectors(void)
{
    static const struct {
        size_t len;
        const char *digest;
    } want[] = {
        { 0, "a3817f04ba25a8e66df67214c7550293" },
        { 8, "3b62a9ba6258f5610f83e264f31497b4" },
        { 16, "6ee2a4ca67b054bbfd3315bf85230577" },
        { 24, "2db479ae78bd50d8882a8a178a6132ad" },
        { 32, "7c3956ca5eeafc3e363e9d556546eb68" },
        { 40, "df6a301e95c95dad97ae0cc8c6913bd8" },
        { 48, "f7e5aef549f782cf379055a608269b16" },
        { 56, "1938f2cf72d54ee97e94166fa91d2a36" },
        { 512, "5c0015d27aa522b0578c152b5a0ed90b" },
        { 4096, "3bcc209c9b0e6d125332b50599f21b00" },
    };
    uint8_t key[16], data[4096], digest[16], expect[16];

    for (int i = 0; i < 16; i++) {
        key[i] = i;
    }
    for (int i = 0; i < 4096; i++) {
        data[i] = i;
    }
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        unhex(expect, want[i].digest);
        dedup_siphash(key, data, want[i].len, digest);
        CHECK(!memcmp(digest, expect, 16));
    }
}

/* Also from digest_reference.py: byte i of page n is (i * (n + 1) >> n) & 0xff */
static void digest_vectors(void)
{
    static const char *want[] = {
        "c6ac6c2ccda30c48e7281fb06e168640",
        "c6ac6c2ccda30c48e7281fb06e168640",
        "ddb510b82718d24c17025a3aeaf2ac0f",
        "5f94c3a016f03ef93c914b0ad58ad0e9",
    };
    uint8_t key[16], page[4096], digest[16], expect[16];

    for (int i = 0; i < 16; i++) {
        key[i] = i;
    }
    for (unsigned n = 0; n < sizeof(want) / sizeof(want[0]); n++) {
        for (unsigned i = 0; i < sizeof(page); i++) {
            page[i] = i * (n + 1) >> n;
        }
        unhex(expect, want[n]);
        dedup_digest(key, page, digest);
        CHECK(!memcmp(digest, expect, 16));
    }
}

/* Whatever the processor, the leaves are the same: each is a SipHash */
static void leaves_agree(void)
{
    uint8_t key[16], page[4096], leaves[DEDUP_LANES * 16], want[16];

    for (unsigned turn = 0; turn < 100; turn++) {
        for (unsigned i = 0; i < sizeof(page); i++) {
            page[i] = rnd();
            key[i % 16] = page[i];
        }
        for (unsigned n = 0; n < DEDUP_LEAVES_IMPLS; n++) {
            DedupLeaves *impl = dedup_leaves_impl(n);

            if (!impl) {
                continue;
            }
            impl(key, page, leaves);
            for (unsigned lane = 0; lane < DEDUP_LANES; lane++) {
                uint8_t column[520] = { 0 };

                for (unsigned row = 0; row < 64; row++) {
                    memcpy(column + row * 8,
                           page + (row * DEDUP_LANES + lane) * 8, 8);
                }
                column[512] = lane;
                dedup_siphash(key, column, sizeof(column), want);
                CHECK(!memcmp(want, leaves + lane * 16, 16));
            }
        }
    }
    CHECK(dedup_leaves_impl(0));
    CHECK(!dedup_leaves_impl(DEDUP_LEAVES_IMPLS));
}

static void digest_depends_on_all(void)
{
    uint8_t key[16] = { 1 }, page[4096] = { 2 }, a[16], b[16];

    dedup_digest(key, page, a);
    for (unsigned bit = 0; bit < 4096 * 8; bit++) {
        page[bit / 8] ^= 1 << bit % 8;
        dedup_digest(key, page, b);
        CHECK(memcmp(a, b, 8) && memcmp(a + 8, b + 8, 8));
        page[bit / 8] ^= 1 << bit % 8;
    }
    for (unsigned bit = 0; bit < 128; bit++) {
        key[bit / 8] ^= 1 << bit % 8;
        dedup_digest(key, page, b);
        CHECK(memcmp(a, b, 8) && memcmp(a + 8, b + 8, 8));
        key[bit / 8] ^= 1 << bit % 8;
    }
}

/* Neither place nor alignment of the page matters */
static void digest_unaligned(void)
{
    uint8_t key[16] = { 7 }, room[4096 + 8], a[16], b[16];

    for (int i = 0; i < 4096; i++) {
        room[i] = i * 31 >> 3;
    }
    dedup_digest(key, room, a);
    for (int shift = 1; shift < 8; shift++) {
        memmove(room + shift, room + shift - 1, 4096);
        dedup_digest(key, room + shift, b);
        CHECK(!memcmp(a, b, 16));
        CHECK(dedup_fingerprint(room + shift) ==
              dedup_fingerprint(memcpy((uint8_t[4096]) { 0 }, room + shift,
                                       4096)));
    }
}

static void fingerprint_never_zero(void)
{
    uint64_t page[512] = { 0 };
    unsigned ones = 0;

    CHECK(dedup_fingerprint(page));
    memset(page, 0xff, sizeof(page));
    CHECK(dedup_fingerprint(page));
    /* 2^20 pages: sixteen would have a fingerprint of 0 were it allowed */
    for (unsigned i = 0; i < 1 << 20; i++) {
        uint16_t f;

        page[0] = rnd();
        f = dedup_fingerprint(page);
        CHECK(f);
        ones += f == 1;
    }
    CHECK(ones >= 8 && ones <= 80);
}

/* A change in any sampled word, one in each quarter of the page, shows */
static void fingerprint_sees_samples(void)
{
    uint64_t page[512];
    unsigned sampled = 0, quarters = 0;

    for (int i = 0; i < 512; i++) {
        page[i] = rnd();
    }
    for (int i = 0; i < 512; i++) {
        uint16_t before = dedup_fingerprint(page);
        unsigned changed = 0;

        for (int k = 0; k < 64; k++) {
            page[i] ^= 1ull << k;
            changed += dedup_fingerprint(page) != before;
            page[i] ^= 1ull << k;
        }
        /* One bit in 65536 may go unseen */
        CHECK(changed == 0 || changed >= 62);
        if (changed) {
            sampled++;
            quarters |= 1 << i / 128;
        }
    }
    CHECK(sampled == 4 && quarters == 0xf);
}

int main(void)
{
    RUN(siphash_vectors);
    RUN(digest_vectors);
    RUN(leaves_agree);
    RUN(digest_depends_on_all);
    RUN(digest_unaligned);
    RUN(fingerprint_never_zero);
    RUN(fingerprint_sees_samples);
    return test_status;
}
