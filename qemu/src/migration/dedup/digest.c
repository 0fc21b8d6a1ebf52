/*
 * Digests of guest pages, see digest.h
 *
 * Vectors are the compilers' own (__attribute__((vector_size))): the one body
 * becomes SSE2, NEON, AVX2 or AVX-512 code.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "digest.h"

#define PAGE 4096

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

/*
 * One round.  The operands are words, or vectors of words: GCC's and Clang's
 * vector types have the same operators.
 */
#define ROTL(x, n) ((x) << (n) | (x) >> (64 - (n)))
#define ROUND(a, b, c, d)                                       \
    do {                                                        \
        a += b; b = ROTL(b, 13); b ^= a; a = ROTL(a, 32);       \
        c += d; d = ROTL(d, 16); d ^= c;                        \
        a += d; d = ROTL(d, 21); d ^= a;                        \
        c += b; b = ROTL(b, 17); b ^= c; c = ROTL(c, 32);       \
    } while (0)

#define INIT_A 0x736f6d6570736575ULL
#define INIT_B (0x646f72616e646f6dULL ^ 0xee)
#define INIT_C 0x6c7967656e657261ULL
#define INIT_D 0x7465646279746573ULL

void dedup_siphash(const uint8_t *key, const void *data, size_t len,
                   uint8_t *digest)
{
    const uint8_t *p = data, *end = p + len;
    uint64_t k0 = load_le64(key), k1 = load_le64(key + 8);
    uint64_t a = k0 ^ INIT_A, b = k1 ^ INIT_B;
    uint64_t c = k0 ^ INIT_C, d = k1 ^ INIT_D;
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

/* Half of the lanes.  Two halves in turn keep the processor's units busy. */
typedef uint64_t Lanes __attribute__((vector_size(32)));

typedef struct Half {
    Lanes a, b, c, d;
} Half;

#define ALL(x) ((Lanes) { (x), (x), (x), (x) })
#define BOTH(n)                                                 \
    for (unsigned round = 0; round < (n); round++) {            \
        ROUND(x.a, x.b, x.c, x.d);                              \
        ROUND(y.a, y.b, y.c, y.d);                              \
    }
#define ABSORB(mx, my)                                          \
    do {                                                        \
        x.d ^= (mx);                                            \
        y.d ^= (my);                                            \
        BOTH(2);                                                \
        x.a ^= (mx);                                            \
        y.a ^= (my);                                            \
    } while (0)
#define RESULT(word)                                            \
    do {                                                        \
        Lanes rx = x.a ^ x.b ^ x.c ^ x.d;                       \
        Lanes ry = y.a ^ y.b ^ y.c ^ y.d;                       \
                                                                \
        for (unsigned i = 0; i < DEDUP_LANES / 2; i++) {        \
            store_le64(leaves + i * 16 + (word) * 8, rx[i]);    \
            store_le64(leaves + (i + DEDUP_LANES / 2) * 16 +    \
                       (word) * 8, ry[i]);                      \
        }                                                       \
    } while (0)

static inline __attribute__((always_inline))
void leaves_body(const uint8_t *key, const void *page, uint8_t *leaves)
{
    const uint8_t *p = page;
    uint64_t k0 = load_le64(key), k1 = load_le64(key + 8);
    Half x = { ALL(k0 ^ INIT_A), ALL(k1 ^ INIT_B),
               ALL(k0 ^ INIT_C), ALL(k1 ^ INIT_D) };
    Half y = x;
    const Lanes nx = { 0, 1, 2, 3 }, ny = { 4, 5, 6, 7 };
    const Lanes last = ALL((uint64_t)(PAGE / DEDUP_LANES + 8) << 56);

    for (const uint8_t *end = p + PAGE; p < end; p += DEDUP_LANES * 8) {
        Lanes mx, my;

        memcpy(&mx, p, sizeof(mx));
        memcpy(&my, p + sizeof(mx), sizeof(my));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        for (unsigned i = 0; i < DEDUP_LANES / 2; i++) {
            mx[i] = __builtin_bswap64(mx[i]);
            my[i] = __builtin_bswap64(my[i]);
        }
#endif
        ABSORB(mx, my);
    }
    ABSORB(nx, ny);
    ABSORB(last, last);

    x.c ^= ALL(0xee);
    y.c ^= ALL(0xee);
    BOTH(4);
    RESULT(0);
    x.b ^= ALL(0xdd);
    y.b ^= ALL(0xdd);
    BOTH(4);
    RESULT(1);
}

static void leaves_any(const uint8_t *key, const void *page, uint8_t *leaves)
{
    leaves_body(key, page, leaves);
}

#ifdef __x86_64__
static __attribute__((target("avx2")))
void leaves_avx2(const uint8_t *key, const void *page, uint8_t *leaves)
{
    leaves_body(key, page, leaves);
}

/* For its rotations; vectors of 512 bits would slow some processors down */
static __attribute__((target("avx2,avx512f,avx512vl")))
void leaves_avx512(const uint8_t *key, const void *page, uint8_t *leaves)
{
    leaves_body(key, page, leaves);
}
#endif

DedupLeaves *dedup_leaves_impl(unsigned n)
{
    switch (n) {
    case 0:
        return leaves_any;
#ifdef __x86_64__
    case 1:
        return __builtin_cpu_supports("avx2") ? leaves_avx2 : NULL;
    case 2:
        return __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512vl") ? leaves_avx512 : NULL;
#endif
    }
    return NULL;
}

static DedupLeaves *leaves_best;

static __attribute__((constructor)) void choose_leaves(void)
{
    for (unsigned n = 0; n < DEDUP_LEAVES_IMPLS; n++) {
        DedupLeaves *impl = dedup_leaves_impl(n);

        leaves_best = impl ? impl : leaves_best;
    }
}

void dedup_digest(const uint8_t *key, const void *page, uint8_t *digest)
{
    uint8_t leaves[DEDUP_LANES * 16];

    leaves_best(key, page, leaves);
    dedup_siphash(key, leaves, sizeof(leaves), digest);
}

static inline uint64_t sample(uint64_t h, const uint8_t *word)
{
    return (ROTL(h, 23) ^ load_le64(word)) * 0xff51afd7ed558ccdULL;
}

/*
 * One word of each quarter, the ends among them.  Each is a line of memory
 * that nobody may have touched before: waiting for them is what recording
 * costs.  Written out, so that the processor waits for all at once.
 */
uint16_t dedup_fingerprint(const void *page)
{
    const uint8_t *p = page;
    uint64_t h = 0x9e3779b97f4a7c15ULL;

    h = sample(h, p);
    h = sample(h, p + 1352);
    h = sample(h, p + 2712);
    h = sample(h, p + 4088);
    h ^= h >> 32;
    h ^= h >> 16;
    return (h & 0xffff) ? h & 0xffff : 1;
}
