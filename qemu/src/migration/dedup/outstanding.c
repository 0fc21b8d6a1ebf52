/*
 * Records sent and not answered yet, see outstanding.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "aside.h"
#include "hold.h"
#include "outstanding.h"

/* NULL: nothing was ever there */
static DedupOutstandingRec *rec_of(DedupOutstanding *o, uint32_t id)
{
    unsigned at = id % DEDUP_RING;
    DedupOutstandingRec *chunk = o->ring[at / DEDUP_RING_CHUNK];

    return chunk ? &chunk[at % DEDUP_RING_CHUNK] : NULL;
}

static DedupRam *ram_of(DedupOutstanding *o, const DedupOutstandingRec *rec)
{
    return g_ptr_array_index(o->rams, rec->ram);
}

/* Does the record count? */
static bool counts(DedupOutstanding *o, const DedupOutstandingRec *rec)
{
    return rec && rec->id >= o->first_id &&
           ram_of(o, rec)->ids[rec->page] == rec->id;
}

static void set_count(DedupOutstanding *o, uint64_t count)
{
    qatomic_set(&o->count, count);
}

/* Take a record that counts out of the list: it does not any more */
static void drop(DedupOutstanding *o, DedupOutstandingRec *rec)
{
    if (rec->newer) {
        rec_of(o, rec->newer)->older = rec->older;
    } else {
        o->newest = rec->older;
    }
    if (rec->older) {
        rec_of(o, rec->older)->newer = rec->newer;
    }
    ram_of(o, rec)->ids[rec->page] = 0;
    set_count(o, o->count - 1);
}

/* Likewise, and have its content sent */
static void send_in_full(DedupOutstanding *o, DedupOutstandingRec *rec)
{
    DedupRam *dr = ram_of(o, rec);

    drop(o, rec);
    set_bit(rec->page, dr->direct);
    dedup_set_dirty(dr, rec->page);
}

void dedup_outstanding_init(DedupOutstanding *o)
{
    memset(o, 0, sizeof(*o));
    o->rams = g_ptr_array_new();
    o->next_id = o->first_id = 1;
}

void dedup_outstanding_free(DedupOutstanding *o)
{
    GPtrArray *rubbish = dedup_rubbish_new();

    for (unsigned i = 0; o->rams && i < o->rams->len; i++) {
        DedupRam *dr = g_ptr_array_index(o->rams, i);

        dedup_rubbish_add(rubbish, &dr->ids);
        dedup_rubbish_add(rubbish, &dr->direct);
        dedup_rubbish_add(rubbish, &dr->waiting);
        dedup_rubbish_add(rubbish, &dr->later);
        dedup_rubbish_add(rubbish, &dr->owed);
        dedup_rubbish_add(rubbish, &dr->told);
        dedup_rubbish_add(rubbish, &dr->redirtied);
        if (dr->gone) {
            dedup_ram_free(dr);
        }
    }
    g_clear_pointer(&o->rams, g_ptr_array_unref);
    for (unsigned i = 0; i < G_N_ELEMENTS(o->ring); i++) {
        dedup_rubbish_add(rubbish, &o->ring[i]);
    }
    dedup_rubbish_free(rubbish);
    o->newest = 0;
    set_count(o, 0);
}

bool dedup_outstanding_add(DedupOutstanding *o, DedupRam *dr, uint64_t page)
{
    uint32_t id = o->next_id;
    DedupOutstandingRec **chunk, *rec;

    if (id >= DEDUP_MAX_ID || page > UINT32_MAX) {
        return false;
    }
    dedup_outstanding_supersede(o, dr, page);
    chunk = &o->ring[id % DEDUP_RING / DEDUP_RING_CHUNK];
    if (!*chunk) {
        *chunk = g_new0(DedupOutstandingRec, DEDUP_RING_CHUNK);
    }
    rec = rec_of(o, id);
    if (counts(o, rec)) {
        send_in_full(o, rec);
        o->evicted++;
    }
    *rec = (DedupOutstandingRec) {
        .id = id, .ram = dr->index, .page = page, .older = o->newest,
    };
    if (o->newest) {
        rec_of(o, o->newest)->newer = id;
    }
    o->newest = id;
    dr->ids[page] = id;
    set_bit(page, dr->owed);
    set_count(o, o->count + 1);
    qatomic_set(&o->next_id, id + 1);
    return true;
}

bool dedup_outstanding_supersede(DedupOutstanding *o, DedupRam *dr,
                                 uint64_t page)
{
    if (!dedup_is_outstanding(o, dr, page)) {
        return false;
    }
    drop(o, rec_of(o, dr->ids[page]));
    return true;
}

DedupRam *dedup_outstanding_settle(DedupOutstanding *o, uint32_t id,
                                   uint64_t *page)
{
    DedupOutstandingRec *rec = id && id < o->next_id ? rec_of(o, id) : NULL;
    DedupRam *dr;

    if (!rec || rec->id != id) {
        return NULL;
    }
    dr = ram_of(o, rec);
    *page = rec->page;
    if (dedup_inject.trust_acks && dedup_is_outstanding(o, dr, rec->page)) {
        rec = rec_of(o, dr->ids[rec->page]);
    }
    if (!counts(o, rec)) {
        return NULL;
    }
    drop(o, rec);
    return dr;
}

/* Sent last is fetched last, so both ends meet */
uint64_t dedup_outstanding_resend(DedupOutstanding *o, uint64_t n)
{
    uint64_t resent = 0;

    for (; resent < n && o->newest; resent++) {
        send_in_full(o, rec_of(o, o->newest));
    }
    dedup_hold_steps(resent);
    return resent;
}

/* None of them counts any more; how many it were */
static uint64_t give_up(DedupOutstanding *o)
{
    uint64_t n = o->count;

    o->first_id = o->next_id;
    o->newest = 0;
    set_count(o, 0);
    return n;
}

/* In the order of pages, which is faster than that of records */
static void set_outstanding_dirty(DedupOutstanding *o, DedupRam *dr)
{
    uint64_t page = 0;

    while ((page = find_next_bit(dr->owed, dr->pages, page)) < dr->pages) {
        if (dedup_is_outstanding(o, dr, page)) {
            dedup_set_dirty(dr, page);
        }
        page++;
    }
}

uint64_t dedup_outstanding_redirty(DedupOutstanding *o)
{
    for (unsigned i = 0; i < o->rams->len && !dedup_inject.no_redirty; i++) {
        set_outstanding_dirty(o, g_ptr_array_index(o->rams, i));
    }
    dedup_hold_steps(o->count);
    return give_up(o);
}

uint64_t dedup_outstanding_pay(DedupOutstanding *o)
{
    for (unsigned i = 0; i < o->rams->len && !dedup_inject.no_redirty; i++) {
        DedupRam *dr = g_ptr_array_index(o->rams, i);

        dedup_set_all_dirty(dr, dr->owed);
        dedup_hold_steps(DEDUP_BITMAP_STEPS(dr->pages));
    }
    return give_up(o);
}
