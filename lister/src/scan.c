/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "scan.h"

#include <string.h>
#include <unistd.h>

#define CHUNK (256 << 10)       /* bytes of page structures read at once */
#define NONE UINT32_MAX

bool scan_init(struct scan *s, const struct kernel *k, struct budget *b,
               struct listing_figures *f, size_t run_bytes,
               size_t owner_bytes)
{
    memset(s, 0, sizeof(*s));
    s->kernel = k;
    s->budget = b;
    s->figures = f;
    s->page_size = sysconf(_SC_PAGESIZE);
    s->head_owner = NONE;
    s->room = run_bytes / sizeof(struct run);
    s->run = budget_alloc(b, s->room * sizeof(struct run));
    s->buffer = budget_alloc(b, CHUNK);
    return s->run && s->buffer && owners_init(&s->owners, b, owner_bytes);
}

void scan_clear(struct scan *s)
{
    owners_clear(&s->owners);
    s->runs = 0;
    /* Owners have new numbers: tails of this folio are not listed. */
    s->head_owner = NONE;
}

static uint64_t field(const uint8_t *page, uint32_t offset)
{
    uint64_t value;

    memcpy(&value, page + offset, 8);
    return value;
}

/* False: no room */
static bool add(struct scan *s, uint64_t page, uint32_t owner, uint64_t index)
{
    struct run *last = s->runs ? &s->run[s->runs - 1] : NULL;

    if (last && last->owner == owner && last->page + last->pages == page &&
        last->index + last->pages == index && last->pages < UINT32_MAX) {
        last->pages++;
        return true;
    }
    if (s->runs == s->room) {
        return false;
    }
    s->run[s->runs++] = (struct run) { page, index, owner, 1 };
    s->owners.owner[owner].runs++;
    return true;
}

static void count(struct scan *s)
{
    uint64_t units = s->page_size / LISTING_PAGE;

    if (s->head_cached) {
        s->figures->cached += units;
    }
    if (s->head_figure) {
        *s->head_figure += units;
    }
}

/*
 * Blocks of a device are read and changed one by one: the page's own flags
 * say too little, its buffers all.
 */
static enum buffers { CHANGED, NOT_READ, CLEAN } judge_buffers(
    const struct scan *s, uint64_t first)
{
    const struct kernel_layout *l = &s->kernel->layout;
    uint64_t buffer = first, state, next;
    enum buffers found = CLEAN;

    for (uint32_t i = 0; i < s->page_size / LISTING_SECTOR; i++) {
        if (buffer % 8 ||
            !kernel_read(s->kernel, buffer + l->buffer_state, &state, 8) ||
            !kernel_read(s->kernel, buffer + l->buffer_next, &next, 8)) {
            return NOT_READ;
        }
        if (state & l->buffer_changed) {
            return CHANGED;
        }
        if (!(state & l->buffer_uptodate)) {
            found = NOT_READ;
        }
        if (next == first) {
            return found;
        }
        buffer = next;
    }
    return NOT_READ;
}

/*
 * A descriptor or commit block of ext4's journal. When the journal comes
 * round, its blocks are overwritten past the device's cache, where the old
 * ones stay and look clean.
 */
static bool is_journal(const struct scan *s, uint64_t number)
{
    uint8_t magic[4];

    return kernel_read_physical(s->kernel, number * s->page_size, magic,
                                sizeof(magic)) &&
           !memcmp(magic, "\xc0\x3b\x39\x98", sizeof(magic));
}

/* A page of the page cache, or whatever: what is to be done with it */
static bool judge(struct scan *s, uint64_t frame, const uint8_t *page,
                  uint64_t mapping)
{
    uint64_t flags = field(page, s->kernel->layout.page_flags);
    enum buffers buffers = CLEAN;
    const struct kernel_layout *l = &s->kernel->layout;
    const struct owner *owner;
    uint32_t number;

    if (flags & l->not_file) {
        return true;
    }
    number = owners_find(&s->owners, s->kernel, mapping);
    if (number == NONE) {
        return false;
    }
    owner = &s->owners.owner[number];
    if (owner->kind == OWNER_INVALID) {
        return true;
    }
    if (owner->kind == OWNER_NO_DISK) {
        s->head_figure = &s->figures->no_disk;
        return true;
    }
    s->head_cached = true;
    if (owner->kind == OWNER_DEVICE && flags & l->has_private) {
        buffers = is_journal(s, frame) ? CHANGED :
                  judge_buffers(s, field(page, l->page_private));
        flags |= buffers == CLEAN ? l->uptodate : 0;
    }
    if (flags & l->writeback) {
        s->head_figure = &s->figures->writeback;
    } else if (flags & l->dirty || buffers == CHANGED) {
        s->head_figure = &s->figures->dirty;
    } else if (!(flags & l->uptodate) || buffers == NOT_READ) {
        s->head_figure = &s->figures->not_read;
    } else {
        s->head_owner = number;
    }
    return true;
}

/* False: a table is full, this page is to be looked at again */
static bool look(struct scan *s, uint64_t number, const uint8_t *page)
{
    const struct kernel_layout *l = &s->kernel->layout;
    uint64_t at = s->kernel->pages + number * l->page_size, mapping;
    uint64_t head = kernel_folio(s->kernel, at, field(page, l->page_head));

    if (head != at) {
        if (head != s->head) {
            return true;
        }
        if (s->head_owner != NONE &&
            !add(s, number, s->head_owner,
                 s->head_index + (number - s->head_page))) {
            return false;
        }
        count(s);
        return true;
    }
    s->head = at;
    s->head_owner = NONE;
    s->head_figure = NULL;
    s->head_cached = false;
    mapping = field(page, l->page_mapping);
    /* The lowest bits mark anonymous memory and movable pages. */
    if (!mapping || mapping & 3) {
        return true;
    }
    if (!judge(s, number, page, mapping)) {
        return false;
    }
    if (s->head_owner != NONE) {
        s->head_page = number;
        s->head_index = field(page, l->page_index);
        if (!add(s, number, s->head_owner, s->head_index)) {
            return false;
        }
    }
    count(s);
    return true;
}

/* The page structures from s->next on; how many could be read, 0: none */
static uint64_t fill(struct scan *s, uint64_t end)
{
    uint32_t size = s->kernel->layout.page_size;
    uint64_t most = CHUNK / size, left = end - s->next;
    uint64_t at = s->kernel->pages + s->next * size;

    for (most = left < most ? left : most; most; most /= 2) {
        if (kernel_read(s->kernel, at, s->buffer, most * size)) {
            return most;
        }
    }
    return 0;
}

enum scan_state scan_some(struct scan *s, uint32_t us_per_run)
{
    const struct kernel *k = s->kernel;

    while (s->segment < k->ram_count) {
        const struct kernel_segment *ram = &k->ram[s->segment];
        uint64_t end = (ram->physical + ram->length) / s->page_size;
        uint64_t start = ram->physical / s->page_size;

        start = start < s->from ? s->from : start;
        s->next = s->next < start ? start : s->next;
        while (s->next < end) {
            uint64_t got = fill(s, end);

            if (budget_time_left(s->budget) <=
                (uint64_t)s->runs * us_per_run) {
                return SCAN_TIME;
            }
            for (uint64_t i = 0; i < got; i++) {
                if (!look(s, s->next, s->buffer + i * k->layout.page_size)) {
                    return SCAN_FULL;
                }
                s->next++;
                s->figures->examined += s->page_size / LISTING_PAGE;
            }
            s->next += !got;
        }
        s->segment++;
    }
    return SCAN_END;
}
