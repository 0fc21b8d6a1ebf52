/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PRESENT (UINT64_C(1) << 63)
#define NUMBER ((UINT64_C(1) << 55) - 1)

/* The number of the page of memory that holds our program's first page */
static uint64_t own_page(void)
{
    size_t size = sysconf(_SC_PAGESIZE);
    int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const volatile char *p = exe < 0 ? MAP_FAILED :
                             mmap(NULL, size, PROT_READ, MAP_SHARED, exe, 0);
    uint64_t entry = 0;

    if (p != MAP_FAILED) {
        (void)p[0];
        if (pread(map, &entry, 8, (uintptr_t)p / size * 8) != 8) {
            entry = 0;
        }
        munmap((void *)p, size);
    }
    close(exe);
    close(map);
    return entry & PRESENT ? entry & NUMBER : 0;
}

bool probe(const struct kernel *k, struct owners *o)
{
    const struct kernel_layout *l = &k->layout;
    uint64_t number = own_page(), address, head, mapping;
    uint32_t owner;

    if (!number) {
        return false;
    }
    address = k->pages + number * l->page_size;
    if (!kernel_read(k, address + l->page_head, &head, 8)) {
        return false;
    }
    address = kernel_folio(k, address, head);
    if (!kernel_read(k, address + l->page_mapping, &mapping, 8)) {
        return false;
    }
    owner = owners_find(o, k, mapping);
    return owner != UINT32_MAX && o->owner[owner].kind != OWNER_INVALID &&
           S_ISREG(o->owner[owner].mode);
}
