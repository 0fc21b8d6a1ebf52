/*
 * Digests of guest pages, see digest.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "digest.h"

static inline uint64_t rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static inline uint64_t load_le64(const void *p)
{
    uint64_t v;

    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline void store_le64(void *p, uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(p, &v, 8);
}

#define ROUND(a, b, c, d)                                       \
    do {                                                        \
        a += b; b = rotl(b, 13); b ^= a; a = rotl(a, 32);       \
        c += d; d = rotl(d, 16); d ^= c;                        \
        a += d; d = rotl(d, 21); d ^= a;                        \
        c += b; b = rotl(b, 17); b ^= c; c = rotl(c, 32);       \
    } while (0)

void dedup_digest(const uint8_t *key, const void *data, size_t len,
                  uint8_t *digest)
{
    const uint8_t *p = data, *end = p + len;
    uint64_t k0 = load_le64(key), k1 = load_le64(key + 8);
    uint64_t a = k0 ^ 0x736f6d6570736575ULL;
    uint64_t b = k1 ^ 0x646f72616e646f6dULL ^ 0xee;
    uint64_t c = k0 ^ 0x6c7967656e657261ULL;
    uint64_t d = k1 ^ 0x7465646279746573ULL;
    uint64_t last = (uint64_t)len << 56;

    for (; p < end; p += 8) {
        uint64_t m = load_le64(p);

        d ^= m;
        ROUND(a, b, c, d);
        ROUND(a, b, c, d);
        a ^= m;
    }
    d ^= last;
    ROUND(a, b, c, d);
    ROUND(a, b, c, d);
    a ^= last;

    c ^= 0xee;
    for (int i = 0; i < 4; i++) {
        ROUND(a, b, c, d);
    }
    store_le64(digest, a ^ b ^ c ^ d);
    b ^= 0xdd;
    for (int i = 0; i < 4; i++) {
        ROUND(a, b, c, d);
    }
    store_le64(digest + 8, a ^ b ^ c ^ d);
}

uint16_t dedup_fingerprint(const void *page)
{
    /* One word of each eighth, at places that differ between the eighths */
    static const uint16_t at[] = { 0, 584, 1168, 1752, 2336, 2920, 3504, 4088 };
    uint64_t h = 0x9e3779b97f4a7c15ULL;

    for (unsigned i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
        uint64_t v;

        memcpy(&v, (const char *)page + at[i], 8);
        h = (rotl(h, 23) ^ v) * 0xff51afd7ed558ccdULL;
    }
    h ^= h >> 32;
    h ^= h >> 16;
    return (h & 0xffff) ? h & 0xffff : 1;
}
