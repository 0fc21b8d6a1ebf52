/* SPDX-License-Identifier: Apache-2.0 */
/* CHECK() ends a test that fails; the next one runs. */
#ifndef TEST_H
#define TEST_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool test_failed;
static int test_status;

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) {                                             \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            test_failed = true;                                         \
            return;                                                     \
        }                                                               \
    } while (0)

#define RUN(function)                                                   \
    do {                                                                \
        test_failed = false;                                            \
        function();                                                     \
        printf("%s %s: %s\n", test_failed ? "not ok" : "ok",            \
               TEST_GROUP, #function);                                  \
        test_status |= test_failed;                                     \
    } while (0)

/* The same numbers in each run */
static inline uint64_t rnd(void)
{
    static uint64_t state = 0x853c49e6748fea9bull;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static inline uint64_t below(uint64_t n)
{
    return rnd() % n;
}

#endif
