/*
 * Source: records in post-copy
 *
 * When post-copy begins, all that is outstanding becomes dirty and is
 * discarded at the destination, as without records.  But dirty pages are then
 * not just sent: a second pass over the hints sends a record for each that
 * storage may have, and the scan sends the others.  The guest writes nothing
 * here any more, so a page has one content, from whichever side it comes, and
 * the destination takes the first.
 *
 * An outstanding page is not in the dirty bitmap.  It is put there again, to
 * go in full, when the destination requests it, refuses it, or storage is
 * slower than the link; and all that are left are at the end.  So nothing
 * waits for storage.  Once post-copy was interrupted, no records are sent:
 * the destination then has said itself which pages it does not have.
 *
 * Who may touch what: see DedupSource.postcopy.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "migration/misc.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "../options.h"
#include "hold.h"
#include "source-int.h"
#include "trace.h"

void dedup_source_postcopy(void)
{
    DEDUP_HOLD("bitmap", "postcopy");
    bool lazy = src.running && src.lazy &&
                qatomic_read(&src.state) == DEDUP_SOURCE_STATE_ACTIVE;

    /* No section is open in which multifd's channels could be synchronised */
    src.pass_done = true;
    dedup_source_finish();
    if (!lazy) {
        return;
    }
    /* Nothing is to go in full that has not been tried again */
    for (unsigned i = 0; i < src.out.rams->len; i++) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, i);

        bitmap_zero(dr->direct, dr->pages);
        dedup_hold_steps(DEDUP_BITMAP_STEPS(dr->pages));
    }
    src.pass_ram = 0;
    src.pass_page = 0;
    src.pass_done = src.idle = src.closing = false;
    src.hold_since_us = 0;
    src.postcopy_us = now_us();
    dedup_pace_init(&src.pace, now_us(),
                    migration_transferred_bytes() +
                    dedup_compress_saved_bytes());
    dedup_pace_round_trip(&src.pace, src.fig.round_trip_us);
    qatomic_set(&src.requested, false);
    src.handed_over = true;
    qatomic_set(&src.postcopy, true);
    src.running = true;
    source_set_state(DEDUP_SOURCE_STATE_ACTIVE);
}

void dedup_source_interrupted(void)
{
    if (src.postcopy) {
        dedup_source_finish();
    }
}

bool source_pass_due(void)
{
    return src.pass_ram < src.out.rams->len && !source_window_full() &&
           !src.closing && src.state == DEDUP_SOURCE_STATE_ACTIVE;
}

bool source_postcopy_iterate(QEMUFile *f)
{
    bool requested = qatomic_xchg(&src.requested, false);

    source_take_answers();
    if (src.closing || src.state == DEDUP_SOURCE_STATE_DRAINING) {
        source_take_later(UINT64_MAX);
    } else if (src.out.count <= source_window() - source_window() / 4) {
        source_take_later(source_window() - src.out.count);
    }
    source_resend_idle();
    if (!source_pass_due() || !source_first_pass(f)) {
        return false;
    }
    /* The return-path thread serves requests if there is a channel for it */
    return migrate_postcopy_preempt() ||
           !(requested || qatomic_read(&src.requested));
}

bool source_postcopy_hold(int64_t now)
{
    if (now - src.postcopy_us < dedup_inject.hold_postcopy_ms * 1000LL) {
        g_usleep(1000);
        return true;
    }
    if (source_pass_due()) {
        return true;
    }
    if (source_unsettled() && dedup_postcopy_waits_for_devices()) {
        return true;                    /* they may need any of the pages */
    }
    if (!dedup_pace_hold(&src.pace, source_unsettled())) {
        return false;
    }
    if (!src.hold_since_us) {
        src.hold_since_us = now;
    }
    src.closing = now - src.hold_since_us < HOLD_MAX_US;
    return src.closing;
}

void dedup_source_requested(void)
{
    if (qatomic_read(&src.postcopy)) {
        qatomic_set(&src.requested, true);
        source_wake();
    }
}

void dedup_source_claim(RAMBlock *rb, unsigned long page)
{
    DedupRam *dr = rb->dedup;

    if (!src.postcopy || !src.running || !dr || !dr->ids ||
        dedup_inject.no_claim) {
        return;
    }
    if (dedup_outstanding_supersede(&src.out, dr, page)) {
        dedup_set_dirty(dr, page);
        src.fig.requested_pages++;
    }
    if (test_and_clear_bit(page, dr->later)) {
        src.later--;
        dedup_set_dirty(dr, page);
    }
    set_bit(page, dr->direct);
}
