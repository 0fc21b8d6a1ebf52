/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "age.h"
#include "pattern.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* No object of pattern.h that others use */
#define OBJECT (UINT64_C(1) << 41)
/* Reads of a file each time it is used; every eighth page is rewritten */
#define READS 16
#define REWRITTEN 8
/* A file is replaced, and memory needed, each so many uses */
#define REPLACED 8
#define PRESSED 32
/* Pages of a new file between two that are written to the disk at once */
#define SYNCED 16

static struct aged aged;
static uint16_t *written;       /* how often, each page of each file */
static uint64_t state;

static uint64_t below(uint64_t limit)
{
    state = pattern_next(state);
    return (state >> 16) % limit;
}

static const char *name(unsigned number)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%u", aged.directory, number);
    return path;
}

static uint64_t start(unsigned number, uint64_t page)
{
    return pattern_start(aged.seed, OBJECT + number, page,
                         written[number * 2 * aged.pages + page]);
}

static bool put(int fd, unsigned number, uint64_t page)
{
    static uint64_t block[PAGE_WORDS];

    written[number * 2 * aged.pages + page]++;
    pattern_fill(block, start(number, page));
    return pwrite(fd, block, PAGE_BYTES, page * PAGE_BYTES) == PAGE_BYTES;
}

static const char *create(unsigned number)
{
    uint64_t pages = 1 + below(2 * aged.pages);
    int fd = open(name(number), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                  0600);
    bool good = fd >= 0;

    for (uint64_t page = 0; good && page < pages; page++) {
        good = put(fd, number, page) && (below(SYNCED) || !fdatasync(fd));
    }
    if (fd >= 0) {
        close(fd);
    }
    return good ? NULL : "a file cannot be created";
}

static const char *use(unsigned number)
{
    static uint64_t block[PAGE_WORDS];
    int fd = open(name(number), O_RDWR | O_CLOEXEC);
    bool good = fd >= 0;
    struct stat st;

    if (good && !fstat(fd, &st)) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        for (unsigned i = 1; good && i <= READS; i++) {
            uint64_t page = below(st.st_size / PAGE_BYTES);

            good = pread(fd, block, PAGE_BYTES, page * PAGE_BYTES) ==
                   PAGE_BYTES &&
                   (i % REWRITTEN || put(fd, number, page));
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return good ? NULL : "a file cannot be used";
}

/* Memory of processes that come and go between the pages of files */
static void press(unsigned long pages)
{
    char *p = mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        return;
    }
    for (unsigned long i = 0; i < pages; i++) {
        p[below(pages) * PAGE_BYTES] = 1;
    }
    munmap(p, pages * PAGE_BYTES);
}

const char *age_files(const struct aged *wanted, unsigned rounds,
                      unsigned long memory)
{
    const char *problem = NULL;

    aged = *wanted;
    free(written);
    written = calloc((size_t)aged.files * 2 * aged.pages, sizeof(*written));
    if (!written) {
        return "there is no memory";
    }
    state = pattern_mix(aged.seed);
    mkdir(aged.directory, 0700);
    for (unsigned i = 0; !problem && i < aged.files; i++) {
        problem = create(i);
    }
    sync();
    for (uint64_t n = 0; !problem && n < (uint64_t)rounds * aged.files; n++) {
        unsigned number = below(aged.files);

        problem = use(number);
        if (!problem && n % REPLACED == 0) {
            unlink(name(number));
            problem = create(number);
        }
        if (memory && n % PRESSED == 0) {
            press(memory);
        }
    }
    sync();
    return problem;
}

uint64_t age_verify(uint64_t *errors, char *error, size_t size)
{
    static uint64_t block[PAGE_WORDS];
    uint64_t bytes = 0, expected;

    for (unsigned i = 0; written && i < aged.files; i++) {
        int fd = open(name(i), O_RDONLY | O_CLOEXEC);
        uint64_t page = 0;
        ssize_t got = -1;

        while (fd >= 0 && (got = read(fd, block, PAGE_BYTES)) > 0) {
            if ((got != PAGE_BYTES || page >= 2 * aged.pages ||
                 pattern_check(block, start(i, page), &expected) >= 0)
                && !(*errors)++ && !*error) {
                snprintf(error, size, "aged file %u, page %u", i,
                         (unsigned)page);
            }
            bytes += got;
            page++;
        }
        if ((got < 0 || !page) && !(*errors)++ && !*error) {
            snprintf(error, size, "aged file %u", i);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    return bytes;
}
