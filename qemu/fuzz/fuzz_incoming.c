/*
 * Fuzz what a source can send: elements in any order, through incoming.c
 *
 * The input is a sequence of elements: be16 type, be16 length, payload.
 * Types above those that exist stand for what else may happen: content for a
 * page, an answer of storage, the end of a section, the end.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "../tests/incoming.h"

enum { CONTENT = 16, PLACE, REFUSE, STOP, CLEANUP, SYNC };

#define QUEUE 256

static uint8_t memory[RAM_PAGES][4096];
static DedupFetchRecord queue[QUEUE];
static unsigned nqueue;
static DedupExtents extents[DISKS];
static unsigned leaves;

void incoming_queue(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        /* What the fetcher relies on */
        g_assert(recs[i].dr == &ram && recs[i].page < RAM_PAGES);
        g_assert(recs[i].id && recs[i].id <= DEDUP_MAX_ID);
        g_assert(recs[i].disk < dedup_fetch_disks(f));
        g_assert(recs[i].sector <= INT64_MAX / 512 - 4096);
        if (recs[i].disk < DISKS) {
            const DedupExtent *e = dedup_extents_find(
                &extents[recs[i].disk], recs[i].sector * 512, 4096);

            g_assert(!e || e->host + (recs[i].sector * 512 - e->start) <=
                           INT64_MAX - 4096);
        }
        queue[nqueue++ % QUEUE] = recs[i];
    }
}

void incoming_answered(uint32_t id, DedupAnswer answer)
{
    (void)id;
    g_assert(answer <= DEDUP_ANSWER_RESERVED);
}

void dedup_fetch_stop(DedupFetch *f)
{
    nqueue = 0;
    for (int i = 0; i < DISKS; i++) {
        dedup_extents_free(&extents[i]);
        leaves = 0;
    }
    g_free(f);
}

static void one(unsigned type, const uint8_t *p, size_t len)
{
    static const uint8_t data[4096] = { 1 };
    unsigned i = len ? p[0] : 0;

    switch (type) {
    case CONTENT:
        dedup_incoming_supersede(&blocks[0], (uint64_t)(i % RAM_PAGES) << 12,
                                 len > 1 ? p[1] : 0);
        break;
    case PLACE:
        if (nqueue) {
            dedup_incoming_place(dedup_in.fetch, &queue[i % MIN(nqueue, QUEUE)], 1,
                                 data);
        }
        break;
    case REFUSE:
        if (nqueue) {
            dedup_incoming_refuse(dedup_in.fetch, &queue[i % MIN(nqueue, QUEUE)],
                                  DEDUP_ANSWER_IO);
        }
        break;
    case STOP:
        dedup_incoming_stop();
        break;
    case CLEANUP:
        dedup_incoming_cleanup();
        break;
    case SYNC:
        dedup_incoming_sync();
        break;
    default:
        /* fetch.c keeps the extents; a disk beyond DISKS gets none */
        if (!incoming_element(type, p, len) && dedup_in.announced && !dedup_in.refuse &&
            type == DEDUP_ELEMENT_EXTENTS) {
            DedupReader r;
            DedupExtent e;
            unsigned disk;

            dedup_reader_init(&r, p, len);
            disk = dedup_get_be(&r, 2);
            dedup_get_be(&r, 2);
            while (disk < DISKS && dedup_get_extent(&r, &e)) {
                dedup_extents_add(&extents[disk], &e, &leaves);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t live = 0;

    incoming_memory(memory);
    incoming_greet();
    while (size >= 4) {
        unsigned type = data[0] << 8 | data[1];
        size_t len = MIN(size - 4, data[2] << 8 | data[3]);

        one(type, data + 4, len);
        data += 4 + len;
        size -= 4 + len;
    }
    dedup_incoming_sync();
    for (int i = 0; ram.ids && i < RAM_PAGES; i++) {
        live += ram.ids[i] != 0;
    }
    g_assert(!dedup_in.announced || live == stat64_get(&dedup_in.live));
    dedup_incoming_finish();
    dedup_incoming_cleanup();
    g_assert(!ram.ids);
    return 0;
}
