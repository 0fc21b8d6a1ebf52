/*
 * Content index: the guest's pages
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "index-int.h"

#define SCAN_PAGES      256             /* in an RCU critical section */

/*
 * ROM is no guest memory, and memory that was taken from the guest
 * (virtio-mem) would be allocated again by a look at it.
 */
static bool ram_counts(DedupRam *dr)
{
    return !qatomic_read(&dr->gone) && dr->rb->mr &&
           memory_region_is_ram(dr->rb->mr) &&
           !memory_region_is_rom(dr->rb->mr) &&
           !memory_region_has_ram_discard_manager(dr->rb->mr);
}

/* Its pages, 0 if it was unplugged meanwhile */
static uint64_t ram_there(const IndexRam *ram)
{
    for (DedupRam *dr = dedup_ram_first(); dr; dr = dedup_ram_next(dr)) {
        if (dr == ram->dr) {
            return ram_counts(dr) ? dr->rb->used_length >> DEDUP_PAGE_BITS
                                  : 0;
        }
    }
    return 0;
}

static uint8_t *host_of(DedupRam *dr, uint64_t page)
{
    return (uint8_t *)dr->host + (page << DEDUP_PAGE_BITS);
}

/* False: no memory.  *@page: where to go on, UINT64_MAX: no more. */
static bool scan_some(Index *x, const IndexRam *ram, uint64_t *page)
{
    uint64_t end, i;

    RCU_READ_LOCK_GUARD();
    end = ram_there(ram);
    for (i = *page; i < MIN(end, *page + SCAN_PAGES); i++) {
        uint8_t *host = host_of(ram->dr, i);
        DedupHint h;

        if (!dedup_hint_get(ram->dr, i, &h) &&
            !buffer_is_zero(host, DEDUP_PAGE_SIZE) &&
            !dedup_content_add(x->table, index_hash(x, host),
                               ram->first + i)) {
            return false;
        }
    }
    *page = i < end ? i : UINT64_MAX;
    return true;
}

bool index_scan_memory(Index *x)
{
    for (unsigned i = 0; i < x->rams->len; i++) {
        IndexRam *ram = &g_array_index(x->rams, IndexRam, i);
        uint64_t page = 0;

        while (page != UINT64_MAX && !index_stopped()) {
            int64_t begun = get_clock();

            if (!scan_some(x, ram, &page)) {
                index_set_reason(g_strdup("not enough memory for the pages"));
                return false;
            }
            WITH_QEMU_LOCK_GUARD(&index_now.lock) {
                index_now.fig.pages = dedup_content_pages(x->table);
                index_now.fig.memory_bytes = dedup_content_bytes(x->table);
            }
            /* Half of a processor */
            index_sleep_until(2 * get_clock() - begun);
        }
    }
    return true;
}

static void page_found(void *opaque, uint32_t number)
{
    Index *x = opaque;
    IndexRam *ram = NULL;
    uint64_t page;

    for (unsigned i = 0; i < x->rams->len; i++) {
        IndexRam *r = &g_array_index(x->rams, IndexRam, i);

        if (r->first <= number) {
            ram = r;
        }
    }
    page = number - ram->first;
    if (page >= ram_there(ram) ||
        memcmp(host_of(ram->dr, page), x->block, DEDUP_PAGE_SIZE)) {
        x->changed++;
    } else if (dedup_hint_fill(ram->dr, page, x->disk->slot,
                               x->offset / DEDUP_SECTOR,
                               dedup_fingerprint(x->block))) {
        x->found++;
    }
}

void index_look_up(Index *x)
{
    RCU_READ_LOCK_GUARD();
    for (uint64_t at = 0; at < x->bytes; at += DEDUP_PAGE_SIZE) {
        x->block = x->buf + at;
        if (!buffer_is_zero(x->block, DEDUP_PAGE_SIZE)) {
            dedup_content_take(x->table, index_hash(x, x->block), page_found,
                               x);
        }
        x->offset += DEDUP_PAGE_SIZE;
    }
}

void index_find_memory(Index *x)
{
    RCU_READ_LOCK_GUARD();
    for (DedupRam *dr = dedup_ram_first(); dr; dr = dedup_ram_next(dr)) {
        IndexRam ram = { .dr = dr, .first = x->pages };

        if (ram_counts(dr)) {
            g_array_append_val(x->rams, ram);
            x->pages += dr->pages;
        }
    }
}
