/* SPDX-License-Identifier: Apache-2.0 */
/* The page cache, and the files that are read into it. */
#define _GNU_SOURCE
#include "guest.h"
#include "age.h"
#include "pattern.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 1 << 18 };
/* Of a file that is aged, on average; with 1024 files 192 MiB */
enum { AGED_PAGES = 48 };

static uint64_t resident(int fd, uint64_t size)
{
    size_t pages = (size + PAGE_BYTES - 1) / PAGE_BYTES;
    unsigned char *vector = malloc(pages + 1);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    uint64_t found = 0;

    if (vector && map != MAP_FAILED && !mincore(map, size, vector)) {
        for (size_t i = 0; i < pages; i++) {
            found += vector[i] & 1;
        }
    }
    if (map != MAP_FAILED) {
        munmap(map, size);
    }
    free(vector);
    return found * PAGE_BYTES;
}

static uint64_t cached;         /* nftw() has no room for one's own */
static bool counting;

/* Read a file, or count what of it is cached. */
static int visit(const char *path, const struct stat *status, int kind,
                 struct FTW *place)
{
    static char buffer[BUFFER];
    int fd;

    (void)place;
    if (kind != FTW_F || !S_ISREG(status->st_mode) || !status->st_size) {
        return 0;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;               /* the database has removed it */
    }
    if (counting) {
        cached += resident(fd, status->st_size);
    } else {
        while (read(fd, buffer, BUFFER) > 0) {
            /* that is all */
        }
    }
    close(fd);
    return 0;
}

static void walk(const char *directory)
{
    nftw(directory, visit, 16, FTW_PHYS);
}

uint64_t files_warm(bool web, bool db)
{
    char base[512];

    snprintf(base, sizeof(base), "%s/base", config.database);
    cached = 0;
    for (int pass = 0; pass < 2; pass++) {
        counting = pass;
        if (web) {
            walk(config.files);
        }
        if (db) {
            walk(base);
        }
    }
    return cached;
}

const char *files_drop(void)
{
    int fd, put;

    sync();
    fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    put = fd < 0 ? -1 : write(fd, "3", 1);
    if (fd >= 0) {
        close(fd);
    }
    return put == 1 ? NULL : "the kernel does not drop its caches";
}

const char *files_age(unsigned rounds, uint64_t memory_mib)
{
    const struct aged aged = {
        .directory = config.aged, .files = config.count, .pages = AGED_PAGES,
        .seed = config.seed,
    };

    return age_files(&aged, rounds, (memory_mib << 20) / PAGE_BYTES);
}

static uint64_t verify_file(unsigned number, char *error, size_t size)
{
    static uint64_t page[PAGE_WORDS];
    char path[512];
    uint64_t errors = 0, expected;
    FILE *file;

    snprintf(path, sizeof(path), "%s/f%05u", config.files, number);
    file = fopen(path, "rb");
    for (unsigned i = 0; i < config.pages; i++) {
        bool right = file && fread(page, PAGE_BYTES, 1, file) == 1 &&
            pattern_check(page, pattern_start(config.seed, number, i, 0),
                          &expected) < 0;

        if (!right && !errors++ && !*error) {
            snprintf(error, size, "f%05u, page %u", number, i);
        }
    }
    if (file) {
        fclose(file);
    }
    return errors;
}

uint64_t files_verify(uint64_t *errors, char *error, size_t size)
{
    for (unsigned i = 0; i < config.count; i++) {
        *errors += verify_file(i, error, size);
    }
    return (uint64_t)config.count * config.pages * PAGE_BYTES;
}
