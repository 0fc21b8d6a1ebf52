/*
 * Destination: the source's hints
 *
 * They go into the table as if they had been recorded here, before the guest
 * runs.  Nothing is believed of them: in the next migration the fingerprint is
 * compared with the page, and whoever reads the place compares the digest.  So
 * only numbers are checked.  What is malformed ends the hints, not the
 * migration; those before stay.
 *
 * The table grows by what it takes for the guest's memory at most (hints.c),
 * and each page is written to once, because pages ascend.  Migration coroutine.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "hold.h"
#include "incoming-int.h"

static void refuse(const char *why)
{
    dedup_in.hint_error = why;
    error_report("dedup: hints of the source are ignored: %s", why);
}

void dedup_incoming_hint_disks(const uint8_t *buf, size_t len)
{
    DedupReader r;
    unsigned n;

    if (dedup_in.hint_error || dedup_in.refuse) {
        return;
    }
    if (dedup_in.hint_disks) {
        refuse("a second list of disks");
        return;
    }
    dedup_reader_init(&r, buf, len);
    n = dedup_get_be(&r, 1);
    if (n > DEDUP_WIRE_MAX_DISKS) {
        refuse("too many disks");
        return;
    }
    for (unsigned i = 0; i < n; i++) {
        unsigned plen = dedup_get_be(&r, 1);
        const uint8_t *path = dedup_get_bytes(&r, plen);
        g_autofree char *name = path ? g_strndup((const char *)path, plen)
                                     : NULL;
        BlockBackend *blk = name ? dedup_blk_by_path(name) : NULL;

        /* 0: a disk that is not here */
        dedup_in.hint_slots[i] = blk ? dedup_slot_of(blk) : 0;
    }
    if (r.bad || r.p != r.end) {
        refuse("the list of disks is malformed");
        return;
    }
    dedup_in.hint_disks = n;
}

static int take(void *opaque, const DedupWireHint *h)
{
    DedupRam *dr;

    if (h->block >= dedup_in.rams->len || h->disk >= dedup_in.hint_disks ||
        h->page >= g_array_index(dedup_in.limits, uint64_t, h->block) ||
        h->sector > INT64_MAX / DEDUP_SECTOR - DEDUP_PAGE_SIZE) {
        refuse("a page, or its place, is out of bounds");
        return -1;
    }
    if (h->block < dedup_in.hint_block ||
        (h->block == dedup_in.hint_block && h->page < dedup_in.hint_page)) {
        refuse("pages do not ascend");
        return -1;
    }
    dedup_in.hint_block = h->block;
    dedup_in.hint_page = h->page + 1;
    dedup_hold_steps(1);
    dr = g_ptr_array_index(dedup_in.rams, h->block);
    if (dr && dedup_in.hint_slots[h->disk]) {
        dedup_hint_set(dr, h->page, dedup_in.hint_slots[h->disk], h->sector,
                       h->fingerprint);
        stat64_add(&dedup_in.hints, 1);
    }
    return 0;
}

void dedup_incoming_hints(const uint8_t *buf, size_t len)
{
    DEDUP_HOLD("bql", "hints-element");

    if (dedup_in.hint_error || dedup_in.refuse) {
        return;
    }
    if (dedup_decode_hints(buf, len, take, NULL) && !dedup_in.hint_error) {
        refuse("an element is malformed");
    }
}
