/*
 * Records sent and not answered yet, see outstanding.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "outstanding.h"

typedef struct OutstandingRec {
    uint32_t ram;
    uint32_t page;              /* 16 TiB in one RAM block */
} OutstandingRec;

#define CHUNK 4096

static OutstandingRec *rec_of(DedupOutstanding *o, uint32_t id)
{
    OutstandingRec *chunk = g_ptr_array_index(o->chunks, id / CHUNK);

    return &chunk[id % CHUNK];
}

void dedup_outstanding_init(DedupOutstanding *o)
{
    o->rams = g_ptr_array_new();
    o->chunks = g_ptr_array_new_with_free_func(g_free);
    o->next_id = 1;
    o->resend_id = 1;
    o->count = 0;
}

void dedup_outstanding_free(DedupOutstanding *o)
{
    for (unsigned i = 0; o->rams && i < o->rams->len; i++) {
        DedupRam *dr = g_ptr_array_index(o->rams, i);

        g_free(dr->ids);
        g_free(dr->direct);
        g_free(dr->waiting);
        g_free(dr->later);
        g_free(dr->owed);
        dr->ids = NULL;
        dr->direct = NULL;
        dr->waiting = NULL;
        dr->later = NULL;
        dr->owed = NULL;
        if (dr->gone) {
            dedup_ram_free(dr);
        }
    }
    g_clear_pointer(&o->rams, g_ptr_array_unref);
    g_clear_pointer(&o->chunks, g_ptr_array_unref);
    o->count = 0;
}

bool dedup_outstanding_add(DedupOutstanding *o, DedupRam *dr, uint64_t page)
{
    uint32_t id = o->next_id;
    OutstandingRec *rec;

    if (id >= DEDUP_MAX_ID || page > UINT32_MAX) {
        return false;
    }
    if (id / CHUNK == o->chunks->len) {
        g_ptr_array_add(o->chunks, g_new(OutstandingRec, CHUNK));
    }
    rec = rec_of(o, id);
    rec->ram = dr->index;
    rec->page = page;
    if (!dr->ids[page]) {
        o->count++;
    }
    dr->ids[page] = id;
    o->next_id++;
    o->resend_id = o->next_id;
    return true;
}

bool dedup_outstanding_supersede(DedupOutstanding *o, DedupRam *dr,
                                 uint64_t page)
{
    if (!dr->ids[page]) {
        return false;
    }
    dr->ids[page] = 0;
    o->count--;
    return true;
}

DedupRam *dedup_outstanding_settle(DedupOutstanding *o, uint32_t id,
                                   uint64_t *page)
{
    OutstandingRec *rec;
    DedupRam *dr;

    if (!id || id >= o->next_id) {
        return NULL;
    }
    rec = rec_of(o, id);
    dr = g_ptr_array_index(o->rams, rec->ram);
    if (dr->ids[rec->page] != id &&
        !(dedup_inject.trust_acks && dr->ids[rec->page])) {
        return NULL;
    }
    *page = rec->page;
    dr->ids[rec->page] = 0;
    o->count--;
    return dr;
}

/* Sent last is fetched last, so both ends meet */
uint64_t dedup_outstanding_resend(DedupOutstanding *o, uint64_t n)
{
    uint64_t resent = 0;

    while (resent < n && o->count && o->resend_id > 1) {
        uint64_t page;
        DedupRam *dr = dedup_outstanding_settle(o, --o->resend_id, &page);

        if (dr) {
            set_bit(page, dr->direct);
            dedup_set_dirty(dr, page);
            resent++;
        }
    }
    return resent;
}

uint64_t dedup_outstanding_redirty(DedupOutstanding *o)
{
    uint64_t n = o->count;

    if (dedup_inject.no_redirty) {
        o->count = 0;
        return 0;
    }
    o->resend_id = o->next_id;
    dedup_outstanding_resend(o, UINT64_MAX);
    assert(o->count == 0);
    return n;
}

void dedup_outstanding_pay(DedupOutstanding *o)
{
    for (unsigned i = 0; i < o->rams->len && !dedup_inject.no_redirty; i++) {
        DedupRam *dr = g_ptr_array_index(o->rams, i);
        uint64_t page = 0;

        while ((page = find_next_bit(dr->owed, dr->pages, page)) <
               dr->pages) {
            clear_bit(page, dr->owed);
            dedup_set_dirty(dr, page);
        }
    }
}
