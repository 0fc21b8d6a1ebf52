/*
 * Source: pages that the guest has written to again wait for the next round
 *
 * A page that is put off is neither in the dirty bitmap nor at the
 * destination, so it has to come back:
 *
 * 1. Its bit in the dirty log (DIRTY_MEMORY_MIGRATION) is set when it is put
 *    off, and only the synchronisation of the dirty bitmap clears bits there.
 *    It moves them to the bitmap, and it needs the bitmap's mutex, which is
 *    held from taking the page out of the bitmap until the bit was read.
 *    Nothing is put off once the guest is stopped, so there always is one
 *    more synchronisation.
 *
 * 2. DedupRam.redirtied has the pages that were put off and not sent since.
 *    At the end, or when post-copy begins, they are made dirty whatever the
 *    log says.
 *
 * With TCG, bits of the log are current.  KVM has a log of its own, which is
 * read now and then.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "system/kvm.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "hold.h"
#include "source-int.h"
#include "trace.h"

#define FAST_PAGE_NS    3300            /* 10 Gbit/s, until it is measured */

/* What the link takes for a page */
static double page_ns(void)
{
    double mbps = migrate_get_current()->mbps;

    return mbps > 0 ? DEDUP_PAGE_SIZE * 8e3 / mbps : FAST_PAGE_NS;
}

void source_redirtied_round(void)
{
    if (src.put_off) {
        dedup_redirtied_round(&src.redirtied, dedup_source_epoch(), now_us(),
                              page_ns());
    }
}

bool source_put_off(RAMBlock *rb, unsigned long page)
{
    DedupRam *dr = rb->dedup;
    bool found;

    if (!src.put_off || !dr || !dr->redirtied) {
        return false;
    }
    src.put_off_last = false;
    if (src.redirtied.on) {
        found = ram_dedup_redirtied(rb, page) ||
                (src.finished && test_bit(page, dr->redirtied));
        dedup_redirtied_looked(&src.redirtied, found);
        src.fig.deferral_checks++;
        if (found) {
            set_bit(page, dr->redirtied);
            src.fig.deferred_pages++;
            src.put_off_last = true;
            return true;
        }
    }
    if (!dedup_inject.defer_last) {
        src.fig.deferred_sent_pages += test_and_clear_bit(page,
                                                          dr->redirtied);
    }
    return false;
}

void source_redirtied_finish(void)
{
    if (!src.put_off) {
        return;
    }
    if (dedup_inject.defer_last) {
        src.finished = src.redirtied.on = true;
        return;
    }
    src.put_off = src.put_off_last = false;
    for (unsigned i = 0; i < src.out.rams->len; i++) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, i);

        if (dr->redirtied) {
            src.fig.deferred_sent_pages +=
                dedup_set_all_dirty(dr, dr->redirtied);
            dedup_hold_steps(DEDUP_BITMAP_STEPS(dr->pages));
        }
    }
    trace_dedup_source_redirtied(src.fig.deferral_checks,
                                 src.fig.deferred_pages,
                                 src.fig.deferred_sent_pages);
}

static void read_log(void)
{
    int64_t start = now_us();

    if (src.put_off && (kvm_enabled() || dedup_inject.read_log) &&
        dedup_redirtied_read_due(&src.redirtied, start)) {
        ram_dedup_read_log();
        dedup_redirtied_read(&src.redirtied, start, now_us());
    }
}

void source_redirtied_pass(bool synchronised)
{
    if (synchronised) {
        src.redirtied.sync_us = now_us() - src.pass_us;
    } else {
        read_log();
        src.pass_us = now_us();
        src.pass_bytes = migration_transferred_bytes();
    }
}

int64_t source_redirtied_pause(void)
{
    int64_t us, sent_us;

    if (!src.put_off || !src.redirtied.found) {
        return 0;
    }
    sent_us = (migration_transferred_bytes() - src.pass_bytes) *
              page_ns() / DEDUP_PAGE_SIZE / 1000;
    us = dedup_redirtied_pause(&src.redirtied, now_us(), page_ns());
    if (us <= 0) {
        return 0;
    }
    g_usleep(us);
    return MAX(0, now_us() - src.pass_us - sent_us);
}
