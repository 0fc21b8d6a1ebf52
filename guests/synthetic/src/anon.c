/* SPDX-License-Identifier: Apache-2.0 */
/* Anonymous memory with known content; versions say which. */
#define _GNU_SOURCE
#include "guest.h"
#include "pattern.h"

#include <sys/mman.h>

static uint8_t *memory;
static uint32_t *versions;
static uint64_t pages, verify_at, random_state = 88172645463325252u;

static uint64_t start_of(uint64_t page)
{
    return pattern_start(config.seed, ANON_OBJECT, page, versions[page]);
}

static void fill_page(uint64_t page)
{
    (config.incompressible ? pattern_fill : pattern_fill_plain)(
        memory + page * PAGE_BYTES, start_of(page));
}

static void *reserve(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        fatal("no room for %llu bytes of anonymous memory",
              (unsigned long long)bytes);
    }
    return at;
}

void anon_fill(void)
{
    pages = config.anon / PAGE_BYTES;
    if (!pages) {
        return;
    }
    memory = reserve(pages * PAGE_BYTES);
    versions = reserve(pages * sizeof(*versions));
    for (uint64_t page = 0; page < pages; page++) {
        fill_page(page);
    }
}

static void verify_page(uint64_t page)
{
    const uint64_t *words = (void *)(memory + page * PAGE_BYTES);
    uint64_t expected;
    int wrong = (config.incompressible ? pattern_check : pattern_check_plain)(
        words, start_of(page), &expected);

    if (wrong >= 0) {
        note_error("anonymous memory, offset %llu: expected %016llx, "
                   "got %016llx",
                   (unsigned long long)(page * PAGE_BYTES + wrong * 8),
                   (unsigned long long)expected,
                   (unsigned long long)words[wrong]);
    }
}

uint64_t anon_verify_some(uint64_t bytes)
{
    uint64_t count = bytes / PAGE_BYTES;

    if (!pages) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        verify_page(verify_at);
        verify_at = (verify_at + 1) % pages;
    }
    return count * PAGE_BYTES;
}

uint64_t anon_verify_all(void)
{
    for (uint64_t page = 0; page < pages; page++) {
        verify_page(page);
    }
    return pages * PAGE_BYTES;
}

/* One random page of the working set gets its next version. */
uint64_t anon_write_some(void)
{
    uint64_t set = config.wss / PAGE_BYTES;
    uint64_t page;

    if (!pages) {
        return 0;
    }
    set = set && set < pages ? set : pages;
    random_state = pattern_next(random_state);
    page = random_state % set;
    versions[page]++;
    fill_page(page);
    return PAGE_BYTES;
}
