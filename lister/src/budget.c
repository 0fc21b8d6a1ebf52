/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "budget.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int io_fd = -1;

uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * UINT64_C(1000000) + now.tv_nsec / 1000;
}

/* What was read before (our own program, its libraries) is not counted. */
static uint64_t read_before;

static uint64_t total_read(void)
{
    char text[512];
    const char *at;
    ssize_t got;

    if (io_fd < 0) {
        return UINT64_MAX;
    }
    got = pread(io_fd, text, sizeof(text) - 1, 0);
    if (got <= 0) {
        return UINT64_MAX;
    }
    text[got] = 0;
    at = strstr(text, "\nread_bytes: ");
    return at ? strtoull(at + 13, NULL, 10) : UINT64_MAX;
}

void budget_start(struct budget *b)
{
    b->start_us = now_us();
    b->ended = LISTING_WHOLE;
    b->memory_peak = b->memory;
    if (io_fd < 0) {
        io_fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    }
    read_before = total_read();
}

uint64_t budget_time_left(const struct budget *b)
{
    uint64_t passed = now_us() - b->start_us;

    return passed < b->limit_us ? b->limit_us - passed : 0;
}

bool budget_time(struct budget *b)
{
    if (b->ended) {
        return false;
    }
    if (!budget_time_left(b)) {
        b->ended = LISTING_ENDED_TIME;
        return false;
    }
    return true;
}

uint64_t budget_bytes_read(void)
{
    uint64_t total = total_read();

    return total == UINT64_MAX ? total : total - read_before;
}

bool budget_reads(struct budget *b)
{
    uint64_t bytes = budget_bytes_read();

    if (!b->ended && bytes != UINT64_MAX && bytes > b->read_limit) {
        b->ended = LISTING_ENDED_READS;
    }
    return !b->ended;
}

size_t budget_left(const struct budget *b)
{
    return b->memory < b->memory_limit ? b->memory_limit - b->memory : 0;
}

/* Mapped, so that what is given back is given back to the guest. */
void *budget_alloc(struct budget *b, size_t bytes)
{
    void *p;

    if (bytes > budget_left(b)) {
        b->ended = b->ended ? b->ended : LISTING_ENDED_MEMORY;
        return NULL;
    }
    p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        b->ended = b->ended ? b->ended : LISTING_ENDED_MEMORY;
        return NULL;
    }
    b->memory += bytes;
    if (b->memory > b->memory_peak) {
        b->memory_peak = b->memory;
    }
    return p;
}

void budget_free(struct budget *b, void *p, size_t bytes)
{
    if (p) {
        munmap(p, bytes);
        b->memory -= bytes;
    }
}
