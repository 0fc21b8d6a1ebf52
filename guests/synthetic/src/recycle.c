/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that changes its use: pages of the page cache become anonymous
 * ones, half of them zeros, and after a while pages of the page cache again.
 *
 * Of all that a guest does this is the hardest on a migration that reads
 * pages from a disk: what the disk holds stays valid, so that nothing but
 * the order of events says that the page in memory is another one by now.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "pattern.h"

#include <string.h>
#include <sys/mman.h>

/* Runs that are anonymous at a time, 64 KiB each */
#define RUNS 160

static struct {
    struct run run;
    uint8_t *memory;
    uint64_t serial;
} runs[RUNS];
static uint64_t serial;

static uint64_t start_of(unsigned slot, uint64_t page)
{
    return pattern_start(config.seed, ANON_OBJECT + runs[slot].serial, page,
                         1);
}

/* Zeros that are written have a page of their own */
static void take(unsigned slot)
{
    uint64_t bytes = runs[slot].run.pages * PAGE_BYTES;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED) {
        fatal("no room for %llu bytes of anonymous memory",
              (unsigned long long)bytes);
    }
    runs[slot].memory = memory;
    runs[slot].serial = ++serial;
    for (uint64_t page = 0; page < runs[slot].run.pages; page++) {
        if (page % 2) {
            pattern_fill(memory + page * PAGE_BYTES, start_of(slot, page));
        } else {
            *(volatile uint8_t *)(memory + page * PAGE_BYTES) = 0;
        }
    }
}

static uint64_t verify(unsigned slot)
{
    static const uint8_t zeros[PAGE_BYTES];

    if (!runs[slot].memory) {
        return 0;
    }
    for (uint64_t page = 0; page < runs[slot].run.pages; page++) {
        const uint8_t *at = runs[slot].memory + page * PAGE_BYTES;
        uint64_t expected;

        if (page % 2 ? pattern_check((const void *)at, start_of(slot, page),
                                     &expected) >= 0
                     : !!memcmp(at, zeros, PAGE_BYTES)) {
            note_error("recycled memory, run %llu page %llu is wrong",
                       (unsigned long long)runs[slot].serial,
                       (unsigned long long)page);
        }
    }
    return runs[slot].run.pages * PAGE_BYTES;
}

uint64_t recycle_some(uint64_t *read)
{
    static unsigned turn;
    unsigned slot = turn++ % RUNS;

    *read = verify(slot);
    if (*read) {
        munmap(runs[slot].memory, *read);
        runs[slot].memory = NULL;
        *read += files_verify_run(&runs[slot].run);
    }
    if (!files_pick(&runs[slot].run)) {
        return 0;
    }
    files_forget(&runs[slot].run);
    take(slot);
    return runs[slot].run.pages * PAGE_BYTES;
}

uint64_t recycle_verify_all(void)
{
    uint64_t done = 0;

    for (unsigned slot = 0; slot < RUNS; slot++) {
        done += verify(slot);
    }
    return done;
}
