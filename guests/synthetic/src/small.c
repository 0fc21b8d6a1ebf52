/* SPDX-License-Identifier: Apache-2.0
 *
 * Many small files, after PostMark (Katcher, 1997): a pool of files of 100
 * to 500 KB; a transaction creates or deletes one, then reads or appends
 * to one, 4 KB at a time.  Content is the pattern of an object that no
 * other file ever was.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define POOL 64
#define MIN_PAGES 25
#define MAX_PAGES 125
#define SMALL_OBJECT (UINT64_C(1) << 41)

static struct {
    uint64_t serial;            /* 0: no such file */
    unsigned pages;
} pool[POOL];
static uint64_t serials, random_state = 1181783497276652981u;
static uint64_t page[PAGE_WORDS];
static char directory[64];
static atomic_bool dirty;

static uint64_t below(uint64_t limit)
{
    random_state = pattern_next(random_state);
    return (random_state >> 20) % limit;
}

static uint64_t start_of(unsigned i, unsigned at)
{
    return pattern_start(config.seed, SMALL_OBJECT + pool[i].serial, at, 0);
}

static int open_file(unsigned i, int flags)
{
    char path[96];
    int fd;

    snprintf(path, sizeof(path), "%s/s%llu", directory,
             (unsigned long long)pool[i].serial);
    fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0) {
        note_error("%s: %s", path, strerror(errno));
    }
    return fd;
}

static uint64_t append(unsigned i, unsigned pages, int flags)
{
    int fd = open_file(i, O_WRONLY | O_APPEND | flags);
    uint64_t wrote = 0;

    for (; fd >= 0 && pages; pages--) {
        pattern_fill(page, start_of(i, pool[i].pages));
        if (write(fd, page, PAGE_BYTES) != PAGE_BYTES) {
            note_error("s%llu: write: %s",
                       (unsigned long long)pool[i].serial, strerror(errno));
            break;
        }
        pool[i].pages++;
        wrote += PAGE_BYTES;
    }
    if (fd >= 0) {
        close(fd);
    }
    dirty = true;
    return wrote;
}

static uint64_t create(unsigned i)
{
    pool[i].serial = ++serials;
    pool[i].pages = 0;
    return append(i, MIN_PAGES + below(MAX_PAGES - MIN_PAGES), O_CREAT);
}

static void delete(unsigned i)
{
    char path[96];

    snprintf(path, sizeof(path), "%s/s%llu", directory,
             (unsigned long long)pool[i].serial);
    if (unlink(path)) {
        note_error("%s: unlink: %s", path, strerror(errno));
    }
    pool[i].serial = 0;
    dirty = true;
}

static uint64_t verify(unsigned i)
{
    int fd = open_file(i, O_RDONLY);
    uint64_t expected;

    for (unsigned at = 0; fd >= 0 && at < pool[i].pages; at++) {
        if (read(fd, page, PAGE_BYTES) != PAGE_BYTES ||
            pattern_check(page, start_of(i, at), &expected) >= 0) {
            note_error("s%llu, page %u: wrong content",
                       (unsigned long long)pool[i].serial, at);
            break;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return pool[i].pages * PAGE_BYTES;
}

static bool prepare(void)
{
    const char *disk = files_disk_name(0);

    if (!disk) {
        return false;
    }
    snprintf(directory, sizeof(directory), "/data/%s/small", disk);
    if (mkdir(directory, 0700)) {
        note_error("%s: %s", directory, strerror(errno));
        directory[0] = 0;
        return false;
    }
    return true;
}

uint64_t small_some(uint64_t *read)
{
    unsigned i = below(POOL);
    uint64_t wrote = 0;

    *read = 0;
    if (!directory[0] && !prepare()) {
        return 0;
    }
    if (!pool[i].serial) {
        wrote += create(i);
    } else if (serials >= POOL) {
        delete(i);
    }
    i = below(POOL);
    if (!pool[i].serial) {
        return wrote;
    }
    if (below(2) && pool[i].pages < MAX_PAGES) {
        return wrote + append(i, 1 + below(MAX_PAGES - pool[i].pages), 0);
    }
    *read = verify(i);
    return wrote;
}

uint64_t small_verify_all(void)
{
    uint64_t verified = 0;

    for (unsigned i = 0; i < POOL; i++) {
        verified += pool[i].serial ? verify(i) : 0;
    }
    return verified;
}

/* By a thread of its own: nothing but the directory is touched. */
void small_flush(void)
{
    int fd;

    if (!atomic_exchange(&dirty, false)) {
        return;
    }
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || syncfs(fd)) {
        note_error("%s: syncfs: %s", directory, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
}
