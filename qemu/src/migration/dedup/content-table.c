/*
 * Guest pages by what they hold, see content-table.h
 *
 * Pages with the same bytes stand one after the other under one head.  A
 * guest that has made many of them slows the look-ups of that one head down,
 * and only until a block with these bytes has come by.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "content-table.h"

#define CHUNK   65536           /* entries */

typedef struct Entry {
    uint32_t tag;
    uint32_t page;
    uint32_t next;              /* index + 1; 0: the last one */
} Entry;

struct DedupContentTable {
    uint32_t *heads;            /* as Entry.next */
    uint64_t nheads;
    Entry **chunks;
    uint64_t nchunks, max;      /* of chunks */
    uint64_t n;                 /* entries, those taken among them */
    uint64_t taken;
};

static uint64_t heads_for(uint64_t pages)
{
    uint64_t n = 1;

    while (n * 2 <= pages) {
        n *= 2;
    }
    return n;
}

uint64_t dedup_content_bound(uint64_t pages)
{
    uint64_t chunks = (pages + CHUNK - 1) / CHUNK;

    return heads_for(pages) * sizeof(uint32_t) +
           chunks * (sizeof(Entry *) + CHUNK * sizeof(Entry));
}

DedupContentTable *dedup_content_new(uint64_t pages)
{
    DedupContentTable *t;

    if (!pages || pages > DEDUP_CONTENT_MAX_PAGES) {
        return NULL;
    }
    t = g_new0(DedupContentTable, 1);
    t->nheads = heads_for(pages);
    t->max = (pages + CHUNK - 1) / CHUNK;
    t->heads = g_try_new0(uint32_t, t->nheads);
    t->chunks = g_try_new0(Entry *, t->max);
    if (!t->heads || !t->chunks) {
        dedup_content_free(t);
        return NULL;
    }
    return t;
}

void dedup_content_free(DedupContentTable *t)
{
    if (!t) {
        return;
    }
    for (uint64_t i = 0; i < t->nchunks; i++) {
        g_free(t->chunks[i]);
    }
    g_free(t->chunks);
    g_free(t->heads);
    g_free(t);
}

static uint32_t *head_of(DedupContentTable *t, uint64_t hash)
{
    return &t->heads[hash & (t->nheads - 1)];
}

static Entry *entry_at(DedupContentTable *t, uint32_t link)
{
    return &t->chunks[(link - 1) / CHUNK][(link - 1) % CHUNK];
}

bool dedup_content_add(DedupContentTable *t, uint64_t hash, uint32_t page)
{
    uint32_t *head = head_of(t, hash);
    Entry *e;

    if (t->n == t->nchunks * CHUNK) {
        Entry *chunk = t->nchunks < t->max ? g_try_new(Entry, CHUNK) : NULL;

        if (!chunk) {
            return false;
        }
        t->chunks[t->nchunks++] = chunk;
    }
    e = entry_at(t, ++t->n);
    e->tag = hash >> 32;
    e->page = page;
    e->next = *head;
    *head = t->n;
    return true;
}

void dedup_content_take(DedupContentTable *t, uint64_t hash,
                        DedupContentFound *found, void *opaque)
{
    uint32_t *link = head_of(t, hash);

    while (*link) {
        Entry *e = entry_at(t, *link);

        if (e->tag == (uint32_t)(hash >> 32)) {
            *link = e->next;
            t->taken++;
            found(opaque, e->page);
        } else {
            link = &e->next;
        }
    }
}

uint64_t dedup_content_pages(const DedupContentTable *t)
{
    return t->n - t->taken;
}

uint64_t dedup_content_bytes(const DedupContentTable *t)
{
    return t->nheads * sizeof(*t->heads) + t->max * sizeof(*t->chunks) +
           t->nchunks * CHUNK * sizeof(Entry);
}
