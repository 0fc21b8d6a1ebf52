/*
 * Source: the hints go along
 *
 * A page that the destination placed from storage leaves its hint there.  For
 * all others the source sends what it knows, so that the next migration, back
 * or to a third host, begins with as many hints as this one.
 *
 * They go when a switch-over, or post-copy, is due: the guest still runs, and
 * what it reads or writes back later is little.  The switch-over is put off
 * until they are sent, for HINTS_US at most; what is left then is not sent.
 *
 * They are not compared with the pages first.  A hint is never trusted, so one
 * that does not hold any more costs some bytes here, and in the next migration
 * a look at the fingerprint or a record that is refused.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/block-backend.h"
#include "../migration-stats.h"
#include "../qemu-file.h"
#include "hold.h"
#include "source-int.h"

#define HINTS_US        (1000 * 1000)
#define AT_ONCE_US      3000            /* with the bitmap's mutex held */
#define LOOK            8192            /* pages between looks at the clock */
#define LOOK_AT_ONCE    64              /* without: as fast as one with */
/* More than any threshold: no synchronisation of the bitmap meanwhile */
#define PENDING         (INT64_MAX / 2)

void source_hints_prepare(void)
{
    unsigned n = 0;

    g_clear_pointer(&src.hint_disks, g_byte_array_unref);
    src.hint_disks = g_byte_array_new();
    g_byte_array_append(src.hint_disks, (uint8_t *)"", 1);
    memset(src.hint_disk_of_slot, 0, sizeof(src.hint_disk_of_slot));
    for (BlockBackend *b = blk_all_next(NULL);
         b && n < DEDUP_WIRE_MAX_DISKS; b = blk_all_next(b)) {
        g_autofree char *path = dedup_blk_path(b);
        size_t len = path ? strlen(path) : 0;
        unsigned slot = len && len <= UINT8_MAX ? dedup_slot_of(b) : 0;
        uint8_t byte = len;

        if (slot) {
            g_byte_array_append(src.hint_disks, &byte, 1);
            g_byte_array_append(src.hint_disks, (uint8_t *)path, len);
            src.hint_disk_of_slot[slot] = ++n;
        }
    }
    src.hint_disks->data[0] = n;
    src.hints_due = false;
    src.hints_since_us = 0;
    src.hints_ram = 0;
    src.hints_page = 0;
}

uint64_t source_hints_pending(void)
{
    if (src.hints_since_us && now_us() - src.hints_since_us > HINTS_US) {
        src.hints_due = false;
    }
    return src.hints_due && src.hints_since_us ? PENDING : 0;
}

bool source_hold_for_hints(void)
{
    if (src.hints_due && !src.hints_since_us) {
        src.hints_since_us = now_us();
    }
    return source_hints_pending();
}

/*
 * The next ones that the destination may not have, of LOOK pages with a hint;
 * their number
 */
static unsigned next_hints(DedupWireHint *hints)
{
    unsigned n = 0, looked = 0;

    while (src.hints_ram < src.out.rams->len && looked++ < LOOK &&
           n < DEDUP_WIRE_MAX_HINTS) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, src.hints_ram);
        uint64_t page = dedup_hint_next(dr, src.hints_page);
        DedupHint h;

        if (qatomic_read(&dr->gone) ||
            page >= dr->rb->used_length >> DEDUP_PAGE_BITS) {
            src.hints_ram++;
            src.hints_page = 0;
            continue;
        }
        looked += (page - src.hints_page) / LOOK_AT_ONCE;
        src.hints_page = page + 1;
        dedup_hold_steps(1);
        if (!test_bit(page, dr->told) && dedup_hint_get(dr, page, &h) &&
            src.hint_disk_of_slot[h.slot]) {
            hints[n++] = (DedupWireHint) {
                .block = dr->index,
                .disk = src.hint_disk_of_slot[h.slot] - 1,
                .page = page,
                .sector = h.sector,
                .fingerprint = h.fingerprint,
            };
        }
    }
    return n;
}

static void send_hints(QEMUFile *f, const DedupWireHint *hints, unsigned n)
{
    g_autofree uint8_t *buf = g_malloc(DEDUP_WIRE_HINTS_BOUND(n));
    uint64_t before = src.fig.record_bytes;

    QEMU_BUILD_BUG_ON(DEDUP_WIRE_HINTS_BOUND(DEDUP_WIRE_MAX_HINTS) >
                      DEDUP_WIRE_MAX_PAYLOAD);
    if (src.hint_disks) {
        source_send_element(f, DEDUP_ELEMENT_HINT_DISKS,
                            src.hint_disks->data, src.hint_disks->len);
        g_clear_pointer(&src.hint_disks, g_byte_array_unref);
    }
    source_send_element(f, DEDUP_ELEMENT_HINTS, buf,
                        dedup_encode_hints(buf, hints, n));
    src.fig.hint_pages += n;
    src.fig.hint_bytes += src.fig.record_bytes - before;
}

bool source_send_hints(QEMUFile *f)
{
    g_autofree DedupWireHint *hints = NULL;
    uint64_t left = dedup_at_once(DEDUP_STEPS);

    if (!source_hints_pending()) {
        return false;
    }
    hints = g_new(DedupWireHint, DEDUP_WIRE_MAX_HINTS);
    while (!migration_rate_exceeded(f)) {
        unsigned n = next_hints(hints);

        if (n) {
            send_hints(f, hints, n);
        }
        if (src.hints_ram == src.out.rams->len) {
            src.hints_due = false;
            return false;
        }
        left -= MIN(left, LOOK);
        if (!left || now_us() - src.begun_us > AT_ONCE_US) {
            break;
        }
    }
    return true;
}
