/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "resident.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW 16384            /* pages of a file that are mapped at once */
#define MAX_MEMORY_PAGES (UINT64_C(1) << 32)

/* /proc/kpageflags (Linux, include/uapi/linux/kernel-page-flags.h) */
#define FLAG(n) (UINT64_C(1) << (n))
#define UPTODATE FLAG(3)
#define DIRTY FLAG(4)
#define WRITEBACK FLAG(8)
#define ANON FLAG(12)
#define SWAPBACKED FLAG(14)

enum { OTHER, CLEAN, IS_DIRTY, IS_WRITTEN };

/* /proc/self/pagemap */
#define PRESENT FLAG(63)
#define NUMBER (FLAG(55) - 1)

/* A file that is truncated meanwhile has pages that cannot be touched. */
static sigjmp_buf truncated;

static void on_sigbus(int signal)
{
    (void)signal;
    siglongjmp(truncated, 1);
}

static uint8_t judge(uint64_t flags)
{
    if (flags & (ANON | SWAPBACKED)) {
        return OTHER;
    }
    if (flags & WRITEBACK) {
        return IS_WRITTEN;
    }
    if (flags & DIRTY) {
        return IS_DIRTY;
    }
    return flags & UPTODATE ? CLEAN : OTHER;
}

/* The highest page number there is flags for */
static uint64_t read_flags(struct resident *r, struct budget *b, int fd)
{
    static uint64_t flags[8192];
    size_t room = budget_left(b) / 4;
    uint64_t at = 0;
    ssize_t got;

    r->flags = budget_alloc(b, room);
    while (r->flags && at < room && at < MAX_MEMORY_PAGES &&
           budget_time(b) &&
           (got = pread(fd, flags, sizeof(flags), at * 8)) > 0) {
        uint64_t count = got / 8;

        count = count < room - at ? count : room - at;
        for (uint64_t i = 0; i < count; i++) {
            r->flags[at + i] = judge(flags[i]);
        }
        at += count;
    }
    return at;
}

const char *resident_open(struct resident *r, struct budget *b)
{
    struct sigaction action = { .sa_handler = on_sigbus };
    int fd = open("/proc/kpageflags", O_RDONLY | O_CLOEXEC);

    r->page_size = sysconf(_SC_PAGESIZE);
    r->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || r->pagemap < 0) {
        return "the kernel does not show pages and their flags";
    }
    r->pages = read_flags(r, b, fd);
    close(fd);
    sigaction(SIGBUS, &action, NULL);
    return r->pages ? NULL : "flags of pages cannot be read";
}

static bool add(struct scan *s, uint64_t page, uint64_t index, uint32_t owner)
{
    struct run *last = s->runs ? &s->run[s->runs - 1] : NULL;

    if (last && last->owner == owner && last->page + last->pages == page &&
        last->index + last->pages == index) {
        last->pages++;
        return true;
    }
    if (s->runs == s->room) {
        s->budget->ended = LISTING_ENDED_MEMORY;
        return false;
    }
    s->run[s->runs++] = (struct run) { page, index, owner, 1 };
    return true;
}

/* The window is mapped at `p`, and `there` says which pages are. */
static bool add_window(const struct resident *r, struct scan *s,
                       const volatile char *p, const unsigned char *there,
                       uint64_t index, unsigned count, uint32_t owner)
{
    static uint64_t numbers[WINDOW];
    uint64_t units = r->page_size / LISTING_PAGE;

    if (sigsetjmp(truncated, 1)) {
        return true;
    }
    for (unsigned i = 0; i < count; i++) {
        if (there[i] & 1) {
            (void)p[(size_t)i * r->page_size];
        }
    }
    if (pread(r->pagemap, numbers, count * 8,
              (uintptr_t)p / r->page_size * 8) != (ssize_t)count * 8) {
        return true;
    }
    for (unsigned i = 0; i < count; i++) {
        uint64_t number = numbers[i] & NUMBER;

        if (!(numbers[i] & PRESENT) || !number || number >= r->pages ||
            !(there[i] & 1)) {
            continue;
        }
        s->figures->cached += units;
        if (r->flags[number] == IS_DIRTY) {
            s->figures->dirty += units;
        } else if (r->flags[number] == IS_WRITTEN) {
            s->figures->writeback += units;
        } else if (r->flags[number] != CLEAN) {
            s->figures->not_read += units;
        } else if (!add(s, number, index + i, owner)) {
            return false;
        }
    }
    return true;
}

bool resident_add(const struct resident *r, struct scan *s, int fd,
                  uint64_t size, uint32_t owner)
{
    static unsigned char there[WINDOW];
    uint64_t pages = (size + r->page_size - 1) / r->page_size;
    bool good = true;

    for (uint64_t at = 0; good && at < pages; at += WINDOW) {
        unsigned count = pages - at < WINDOW ? pages - at : WINDOW;
        size_t length = (size_t)count * r->page_size;
        void *p;

        if (!budget_time(s->budget)) {
            return false;
        }
        p = mmap(NULL, length, PROT_READ, MAP_SHARED, fd,
                 at * r->page_size);
        if (p == MAP_FAILED) {
            return true;
        }
        if (!mincore(p, length, there) && memchr(there, 1, count)) {
            /* First no read-ahead; then no mark of use on the pages, which
             * a mapping of this kind leaves behind when it goes. */
            madvise(p, length, MADV_RANDOM);
            good = add_window(r, s, p, there, at, count, owner);
            madvise(p, length, MADV_SEQUENTIAL);
        }
        munmap(p, length);
    }
    return good;
}
