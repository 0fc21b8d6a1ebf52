/* SPDX-License-Identifier: Apache-2.0
 *
 * The content every test page has, as a function of where it belongs.
 *
 *   start(seed, object, page, version) -> 64-bit state, never zero
 *   word 0 of the page  = the state
 *   word i              = xorshift64(word i - 1)
 *
 * An object is a file (its number on the disk) or ANON_OBJECT.  A page is
 * 4096 B, words are little endian.  The sequence passes for random, so
 * neither zlib nor zstd nor another page can make it smaller, and each
 * word costs six cheap operations, which matters under emulation.
 *
 * Anonymous memory has a second form, that compresses as the memory of a
 * real guest does (pattern_fill_plain): only every sixth word is of the
 * sequence, and those between are a small number of the page plus one that
 * repeats every 24 words.  zstd -1 makes 0.195 of batches of 64 such pages;
 * of what a Debian guest holds besides zeros and its disk it makes 0.20.
 *
 * The guest, the host tool that fills disks and guests/synthetic/pattern.py
 * share this definition; a unit test compares the latter two.
 */
#ifndef PATTERN_H
#define PATTERN_H

#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES 4096
#define PAGE_WORDS (PAGE_BYTES / 8)
#define ANON_OBJECT (UINT64_C(1) << 40)

static inline uint64_t pattern_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline uint64_t pattern_start(uint64_t seed, uint64_t object,
                                     uint64_t page, uint32_t version)
{
    uint64_t x = pattern_mix(seed);

    x = pattern_mix(x ^ object);
    x = pattern_mix(x ^ page);
    x = pattern_mix(x ^ version);
    return x ? x : 1;
}

static inline uint64_t pattern_next(uint64_t x)
{
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

static inline void pattern_fill(void *page, uint64_t x)
{
    uint64_t *word = page;

    for (size_t i = 0; i < PAGE_WORDS; i++) {
        word[i] = x;
        x = pattern_next(x);
    }
}

#define PLAIN_PERIOD 6
#define PLAIN_RUNS 4

/* Word i between two of the sequence */
static inline uint64_t pattern_plain(uint64_t start, size_t i)
{
    return (start & 0xffffff) + i / PLAIN_PERIOD % PLAIN_RUNS;
}

static inline void pattern_fill_plain(void *page, uint64_t start)
{
    uint64_t *word = page, x = start;

    for (size_t i = 0; i < PAGE_WORDS; i++) {
        if (i % PLAIN_PERIOD) {
            word[i] = pattern_plain(start, i);
        } else {
            word[i] = x;
            x = pattern_next(x);
        }
    }
}

/* As pattern_check() */
static inline int pattern_check_plain(const void *page, uint64_t start,
                                      uint64_t *expected)
{
    const uint64_t *word = page;
    uint64_t x = start;

    for (int i = 0; i < PAGE_WORDS; i++) {
        *expected = i % PLAIN_PERIOD ? pattern_plain(start, i) : x;
        if (word[i] != *expected) {
            return i;
        }
        if (i % PLAIN_PERIOD == 0) {
            x = pattern_next(x);
        }
    }
    return -1;
}

/* Index of the first wrong word, or -1; *expected is what it should be. */
static inline int pattern_check(const void *page, uint64_t x,
                                uint64_t *expected)
{
    const uint64_t *word = page;

    for (int i = 0; i < PAGE_WORDS; i++) {
        if (word[i] != x) {
            *expected = x;
            return i;
        }
        x = pattern_next(x);
    }
    return -1;
}

#endif
