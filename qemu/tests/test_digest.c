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
 * computed with siphash_reference.py, which gives the others, too.
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
        dedup_digest(key, data, want[i].len, digest);
        CHECK(!memcmp(digest, expect, 16));
    }
}

static void digest_depends_on_all(void)
{
    uint8_t key[16] = { 1 }, page[4096] = { 2 }, a[16], b[16];

    dedup_digest(key, page, 4096, a);
    for (unsigned bit = 0; bit < 4096 * 8; bit++) {
        page[bit / 8] ^= 1 << bit % 8;
        dedup_digest(key, page, 4096, b);
        CHECK(memcmp(a, b, 8) && memcmp(a + 8, b + 8, 8));
        page[bit / 8] ^= 1 << bit % 8;
    }
    for (unsigned bit = 0; bit < 128; bit++) {
        key[bit / 8] ^= 1 << bit % 8;
        dedup_digest(key, page, 4096, b);
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
    dedup_digest(key, room, 4096, a);
    for (int shift = 1; shift < 8; shift++) {
        memmove(room + shift, room + shift - 1, 4096);
        dedup_digest(key, room + shift, 4096, b);
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

/* A change in any sampled word, one in each eighth of the page, shows */
static void fingerprint_sees_samples(void)
{
    uint64_t page[512];
    unsigned sampled = 0, eighths = 0;

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
            eighths |= 1 << i / 64;
        }
    }
    CHECK(sampled == 8 && eighths == 0xff);
}

int main(void)
{
    RUN(siphash_vectors);
    RUN(digest_depends_on_all);
    RUN(digest_unaligned);
    RUN(fingerprint_never_zero);
    RUN(fingerprint_sees_samples);
    return test_status;
}
