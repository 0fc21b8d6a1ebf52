/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "kernel.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_HEADERS 4096

static int by_address(const void *a, const void *b)
{
    const struct kernel_segment *one = a, *two = b;

    return one->address < two->address ? -1 : one->address > two->address;
}

/* The direct map: what is mapped at the same distance, most bytes win. */
static uint64_t direct_map(const struct kernel_segment *s, unsigned count)
{
    uint64_t best = 0, distance = 0;

    for (unsigned i = 0; i < count; i++) {
        uint64_t sum = 0;

        for (unsigned k = 0; k < count; k++) {
            if (s[k].address - s[k].physical ==
                s[i].address - s[i].physical) {
                sum += s[k].length;
            }
        }
        if (sum > best) {
            best = sum;
            distance = s[i].address - s[i].physical;
        }
    }
    return distance;
}

/*
 * Where the array of page structures would begin if this segment described
 * that piece of memory.  The kernel shows whole pages of the array for each
 * piece, less what a piece before has shown already.
 */
static bool array_of(const struct kernel_segment *ram,
                     const struct kernel_segment *s, uint32_t struct_page,
                     uint64_t page, uint64_t *base)
{
    uint64_t first = ram->physical / page * struct_page / page * page;
    uint64_t end = (ram->physical + ram->length) / page * struct_page;

    end = (end + page - 1) / page * page;
    if (s->length > end - first || end - first - s->length > 2 * page) {
        return false;
    }
    *base = s->address + s->length - end;
    return true;
}

/* The segment that ends at `end`; they are sorted and do not overlap. */
static const struct kernel_segment *ends_at(const struct kernel *k,
                                            uint64_t end)
{
    unsigned low = 0, high = k->other_count;

    while (low < high) {
        unsigned middle = (low + high) / 2;
        const struct kernel_segment *s = &k->other[middle];

        if (s->address + s->length == end) {
            return s;
        }
        if (s->address + s->length < end) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* Bytes of segments that describe memory if the array begins at `base` */
static uint64_t agree(const struct kernel *k, uint32_t struct_page,
                      uint64_t page, uint64_t base)
{
    uint64_t sum = 0, other;

    for (unsigned i = 0; i < k->ram_count; i++) {
        uint64_t end = (k->ram[i].physical + k->ram[i].length) / page *
                       struct_page;
        const struct kernel_segment *s =
            ends_at(k, base + (end + page - 1) / page * page);

        if (s && array_of(&k->ram[i], s, struct_page, page, &other)) {
            sum += s->length;
        }
    }
    return sum;
}

static uint64_t find_pages(const struct kernel *k, uint32_t struct_page)
{
    uint64_t page = sysconf(_SC_PAGESIZE), best = 0, found = 0, base;
    const struct kernel_segment *largest = &k->ram[0];

    for (unsigned i = 1; i < k->ram_count; i++) {
        if (k->ram[i].length > largest->length) {
            largest = &k->ram[i];
        }
    }
    /* One of the segments has the largest piece's page structures. */
    for (unsigned i = 0; i < k->other_count; i++) {
        uint64_t sum;

        if (!array_of(largest, &k->other[i], struct_page, page, &base)) {
            continue;
        }
        sum = agree(k, struct_page, page, base);
        if (sum > best) {
            best = sum;
            found = base;
        }
    }
    return found;
}

const char *kernel_parse_segments(struct kernel *k, const uint8_t *headers,
                                  size_t size, unsigned count,
                                  uint32_t struct_page)
{
    uint64_t distance;
    unsigned known = 0, kept = 0;

    k->ram_count = k->other_count = 0;
    for (unsigned i = 0; i < count && (i + 1) * sizeof(Elf64_Phdr) <= size;
         i++) {
        struct kernel_segment s;
        Elf64_Phdr p;

        memcpy(&p, headers + i * sizeof(p), sizeof(p));
        if (p.p_type != PT_LOAD || !p.p_memsz ||
            p.p_vaddr > UINT64_MAX - p.p_memsz) {
            continue;
        }
        s = (struct kernel_segment) {
            p.p_vaddr, p.p_memsz, p.p_paddr, p.p_offset,
        };
        if (p.p_paddr != UINT64_MAX && known < KERNEL_MAX_SEGMENTS &&
            p.p_paddr < UINT64_C(1) << 52) {
            k->ram[known++] = s;
        } else if (k->other_count < KERNEL_MAX_SEGMENTS) {
            k->other[k->other_count++] = s;
        }
    }
    distance = direct_map(k->ram, known);
    for (unsigned i = 0; i < known; i++) {
        if (k->ram[i].address - k->ram[i].physical == distance) {
            k->ram[kept++] = k->ram[i];
        }
    }
    k->ram_count = kept;
    qsort(k->ram, kept, sizeof(k->ram[0]), by_address);
    qsort(k->other, k->other_count, sizeof(k->other[0]), by_address);
    if (!kept) {
        return "/proc/kcore shows no memory";
    }
    k->pages = find_pages(k, struct_page);
    return k->pages ? NULL : "/proc/kcore does not show the page structures";
}

static const char *read_segments(struct kernel *k, struct budget *b)
{
    const char *why = "/proc/kcore cannot be read";
    uint8_t *headers;
    Elf64_Ehdr e;
    size_t size;

    if (pread(k->fd, &e, sizeof(e), 0) != sizeof(e) ||
        memcmp(e.e_ident, ELFMAG, SELFMAG) ||
        e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_phnum > MAX_HEADERS ||
        e.e_phentsize != sizeof(Elf64_Phdr)) {
        return why;
    }
    size = e.e_phnum * sizeof(Elf64_Phdr);
    headers = size ? budget_alloc(b, size) : NULL;
    if (headers && pread(k->fd, headers, size, e.e_phoff) == (ssize_t)size) {
        why = kernel_parse_segments(k, headers, size, e.e_phnum,
                                    k->layout.page_size);
    }
    budget_free(b, headers, size);
    return why;
}

const char *kernel_open(struct kernel *k, bool btrfs, struct budget *b)
{
    const char *why;

    k->fd = open("/proc/kcore", O_RDONLY | O_CLOEXEC);
    if (k->fd < 0) {
        return errno == ENOENT ? "the kernel has no /proc/kcore" :
               "/proc/kcore cannot be opened (lockdown, or not root)";
    }
    why = layout_read(&k->layout, btrfs, &k->no_btrfs, b);
    if (!why) {
        why = read_segments(k, b);
    }
    if (why) {
        kernel_close(k);
    }
    return why;
}

void kernel_close(struct kernel *k)
{
    if (k->fd >= 0) {
        close(k->fd);
        k->fd = -1;
    }
}

static const struct kernel_segment *find(const struct kernel_segment *s,
                                         unsigned count, uint64_t address,
                                         size_t length)
{
    unsigned low = 0, high = count;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (s[middle].address > address) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (!low--) {
        return NULL;
    }
    return address - s[low].address < s[low].length &&
           length <= s[low].length - (address - s[low].address) ? &s[low] :
           NULL;
}

bool kernel_read(const struct kernel *k, uint64_t address, void *into,
                 size_t length)
{
    const struct kernel_segment *s = find(k->ram, k->ram_count, address,
                                          length);

    if (!s) {
        s = find(k->other, k->other_count, address, length);
    }
    return s && pread(k->fd, into, length,
                      s->offset + (address - s->address)) == (ssize_t)length;
}

bool kernel_read_physical(const struct kernel *k, uint64_t address,
                          void *into, size_t length)
{
    /* The same distance for all of it, see direct_map() */
    return k->ram_count &&
           kernel_read(k, k->ram[0].address - k->ram[0].physical + address,
                       into, length);
}

uint64_t kernel_folio(const struct kernel *k, uint64_t page, uint64_t head)
{
    if (!(head & 1)) {
        return page;
    }
    /* A mask is far above any address of the array. */
    return head - 1 >= k->pages && head - 1 < page ? head - 1 : page & head;
}
