/*
 * A test harness: CHECK() ends a test that fails, and the next one runs
 *
 * Prints "ok NAME" or "not ok NAME" for each test.  Everything is
 * deterministic: rnd() starts from the same seed in each test.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef TEST_H
#define TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool test_failed;
static int test_status;               /* of the program */
static uint64_t test_rnd;

#define CHECK(cond)                                                     \
    do {                                                                \
        if (!(cond)) {                                                  \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond);         \
            test_failed = true;                                         \
            return;                                                     \
        }                                                               \
    } while (0)

/* In a test that calls functions with CHECK() */
#define SUB(call)                                                       \
    do {                                                                \
        call;                                                           \
        if (test_failed) {                                              \
            printf("# in %s:%d: %s\n", __FILE__, __LINE__, #call);      \
            return;                                                     \
        }                                                               \
    } while (0)

/* xorshift64* (Vigna 2016) */
static inline uint64_t rnd(void)
{
    test_rnd ^= test_rnd >> 12;
    test_rnd ^= test_rnd << 25;
    test_rnd ^= test_rnd >> 27;
    return test_rnd * 0x2545f4914f6cdd1dULL;
}

/* In [0, n) */
static inline uint64_t below(uint64_t n)
{
    return rnd() % n;
}

static inline void test_run(const char *name, void (*fn)(void))
{
    test_failed = false;
    test_rnd = 0x9e3779b97f4a7c15ULL;
    fn();
    printf("%s %s\n", test_failed ? "not ok" : "ok", name);
    fflush(stdout);
    test_status |= test_failed;
}

#define RUN(fn) test_run(TEST_GROUP ": " #fn, fn)

#endif
