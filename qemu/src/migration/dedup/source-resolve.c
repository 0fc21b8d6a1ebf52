/*
 * Source: where the bytes of shared disks are
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "hold.h"
#include "source-int.h"

#define SCAN_US         2000

void source_kick_resolvers(void)
{
    for (unsigned i = 0; i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);

        if (d->resolver) {
            dedup_resolver_kick(d->resolver);
        }
    }
}

/* Pause all; true: one is still reading metadata */
bool source_halt_resolvers(void)
{
    bool busy = false;

    for (unsigned i = 0; i < src.disks->len && !dedup_inject.no_quiesce;
         i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);

        busy |= d->resolver && dedup_resolver_halt(d->resolver);
    }
    return busy;
}

bool source_resolvers_busy(void)
{
    for (unsigned i = 0; i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);

        if (d->resolver && dedup_resolver_busy(d->resolver)) {
            return true;
        }
    }
    return false;
}

/*
 * Tell the resolvers which places have a hint.  A large guest has millions:
 * a part of them each time, in an RCU critical section and with no lock held.
 */
void source_scan_hints(void)
{
    int64_t start = now_us();
    unsigned n = 0;

    while (src.scan_ram < src.out.rams->len) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, src.scan_ram);
        SourceDisk *d;
        DedupHint h;

        if ((n++ & 1023) == 1023 && now_us() - start > SCAN_US) {
            return;
        }
        src.scan_page = dedup_hint_next(dr, src.scan_page);
        if (src.scan_page >= dr->pages) {
            src.scan_ram++;
            src.scan_page = 0;
            continue;
        }
        if (dedup_hint_get(dr, src.scan_page++, &h) &&
            src.disk_of_slot[h.slot]) {
            d = g_ptr_array_index(src.disks, src.disk_of_slot[h.slot] - 1);
            if (d->resolver) {
                /* Not aligned, a page may reach into the next grain */
                dedup_resolver_want(d->resolver, h.sector * DEDUP_SECTOR);
                dedup_resolver_want(d->resolver, h.sector * DEDUP_SECTOR +
                                                 DEDUP_PAGE_SIZE - 1);
            }
        }
    }
    src.scanned = true;
    source_kick_resolvers();
}

void dedup_source_quiesce(void)
{
    DEDUP_HOLD("bql", "quiesce");

    for (unsigned i = 0; src.prepared && i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);

        if (d->resolver && !dedup_inject.no_quiesce) {
            dedup_resolver_end(d->resolver);
        }
    }
}
