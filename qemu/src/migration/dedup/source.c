/*
 * Source: the course of a migration
 *
 * Life of one armed migration:
 *
 *   x-dedup-arm          armed        nothing happens yet
 *   migration set-up     negotiating  per-page tables made, disks resolved;
 *                                     the magic PING goes out
 *   HELLO arrived        active       SETUP and EXTENTS go out, then the
 *                                     first pass: a record for each page
 *                                     with a hint, so that storage is busy
 *                                     from the start; then the ordinary
 *                                     scan, a record wherever it can be
 *   too many refusals,   draining     as active, without new records
 *   x-dedup-disarm
 *   switch-over          done         what is outstanding is sent in full
 *   post-copy            active       likewise, or source-postcopy.c
 *
 * PONG without HELLO, no return path, or anything else that stands in the
 * way: done at once, with a reason, and the migration is an ordinary one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "migration/misc.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "../multifd.h"
#include "../options.h"
#include "../qemu-file.h"
#include "../savevm.h"
#include "hold.h"
#include "source-int.h"
#include "trace.h"

#define HELLO_WAIT_US   (1000 * 1000)
#define RESOLVE_WAIT_US (2000 * 1000)
#define NEGOTIATE_US    1000
#define ITERATION_US    3000            /* with the bitmap's mutex held */
#define POSTCOPY_US     1000            /* likewise, a vCPU may wait for it */
#define RESEND_AT_ONCE  (DEDUP_STEPS / 2)       /* likewise */
#define PASS_PAUSE_US   20

void dedup_source_start(MigrationState *s)
{
    if (src.prepared) {
        dedup_pace_init(&src.pace, now_us(), 0);
        src.started_us = now_us();
        src.f = s->to_dst_file;
        qemu_savevm_send_ping(s->to_dst_file, DEDUP_PING_MAGIC);
    }
}

/* The pace is one of pages: compressed ones count in full */
static uint64_t link_bytes(void)
{
    return migration_transferred_bytes() + dedup_compress_saved_bytes();
}

/* Time that says nothing about the link must not lower its measured rate */
static void discount(int64_t us)
{
    static int64_t rest;

    rest += us;
    migrate_get_current()->iteration_start_time += rest / 1000;
    rest %= 1000;
    dedup_pace_idled(&src.pace, us);
}

static void wait_answers(int64_t us)
{
    int64_t start = now_us();

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        if (!src.news) {
            qemu_cond_timedwait(&src.wake, &src.lock, DIV_ROUND_UP(us, 1000));
        }
        src.news = false;
    }
    discount(now_us() - start);
}

/* Come back later, send nothing yet? */
static bool negotiating(QEMUFile *f)
{
    int64_t waited = now_us() - src.started_us;
    bool hello, pong, compress;

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        hello = src.hello;
        pong = src.pong;
    }
    if (!hello) {
        if (!pong && waited < HELLO_WAIT_US) {
            return true;
        }
        source_set_reason(pong ? "the destination does not know the protocol"
                        : "the destination did not answer in time");
        source_set_state(DEDUP_SOURCE_STATE_DONE);
        return false;
    }
    if (src.peer_version != DEDUP_WIRE_VERSION) {
        source_set_reason("the destination speaks version %u of the protocol",
                          src.peer_version);
        source_set_state(DEDUP_SOURCE_STATE_DONE);
        return false;
    }
    if (!src.scanned ||
        (source_resolvers_busy() && waited < HELLO_WAIT_US + RESOLVE_WAIT_US)) {
        return true;
    }
    compress = dedup_compress_wanted() &&
               src.peer_features & DEDUP_FEATURE_ZSTD;
    /* Not with multifd, whose channels are silent in post-copy */
    src.fig.round_trip_us = MIN(src.hello_us - src.started_us, HELLO_WAIT_US);
    if (!dedup_inject.no_round_trip) {
        dedup_pace_round_trip(&src.pace, src.fig.round_trip_us);
    }
    src.lazy = src.lazy_wanted && !migrate_multifd() &&
               src.peer_features & DEDUP_FEATURE_LAZY;
    src.hints_due = src.peer_features & DEDUP_FEATURE_HINTS;
    if (!source_send_setup(f, compress)) {
        source_set_reason("too many disks or RAM blocks");
        source_set_state(DEDUP_SOURCE_STATE_DONE);
        return false;
    }
    src.running = true;
    if (qatomic_cmpxchg(&src.state, DEDUP_SOURCE_STATE_NEGOTIATING,
                        DEDUP_SOURCE_STATE_ACTIVE) !=
        DEDUP_SOURCE_STATE_NEGOTIATING) {
        src.running = false;            /* disarmed meanwhile */
    } else if (compress) {
        dedup_compress_begin(f);
    }
    return false;
}

/* Likewise; all of it waits for one answer, to the PING */
static bool negotiate(QEMUFile *f)
{
    bool again = negotiating(f);

    src.fig.round_trips = 1;
    src.fig.negotiation_us = now_us() - src.started_us;
    return again;
}

/*
 * True while there is more to do in the first pass, and room for it.  The
 * pages it has no room for are left to the scan.
 */
bool source_first_pass(QEMUFile *f)
{
    int64_t most = src.postcopy ? POSTCOPY_US : ITERATION_US;
    int64_t start = now_us();
    int64_t end = MAX(src.begun_us + most, start + most / 2);
    unsigned n = 0;

    while (src.pass_ram < src.out.rams->len &&
           src.state == DEDUP_SOURCE_STATE_ACTIVE) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, src.pass_ram);
        DedupHint h;

        src.pass_page = dedup_hint_next(dr, src.pass_page);
        if (qatomic_read(&dr->gone) ||
            src.pass_page >= dr->rb->used_length >> DEDUP_PAGE_BITS) {
            src.pass_ram++;
            src.pass_page = 0;
            continue;
        }
        if (((n++ & 63) == 63 && (migration_rate_exceeded(f) ||
                                  qatomic_read(&src.requested) ||
                                  now_us() > end)) ||
            source_window_full()) {
            break;
        }
        dedup_hold_steps(1);
        if (dedup_hint_get(dr, src.pass_page, &h) &&
            ram_dedup_take_dirty(dr->rb, src.pass_page) &&
            !source_put_off(dr->rb, src.pass_page) &&
            !source_save_page(dr->rb, src.pass_page)) {
            dedup_set_dirty(dr, src.pass_page);
        }
        src.pass_page++;
    }
    source_flush_records(f);
    /* Busy with digests, not with the link */
    discount(now_us() - start);
    return src.pass_ram < src.out.rams->len && !source_window_full() &&
           src.state == DEDUP_SOURCE_STATE_ACTIVE;
}

/*
 * No content may arrive before SETUP: its epoch would be lost.
 */
static void end_first_pass(QEMUFile *f)
{
    int ret = 0;

    if (multifd_ram_sync_per_round() && !dedup_inject.no_flush) {
        ret = dedup_source_sync(f);
    }
    if (ret < 0) {
        qemu_file_set_error(f, ret);
    }
}

/*
 * Have the idle link send what storage would take longer for.  Not all at
 * once, for the mutex is held.  When it is let go a page is clean, dirty or
 * outstanding, as ever; so it does not matter whether the dirty bitmap is
 * synchronised before the rest has its turn.  The rest adds to what is
 * pending, and what the guest stops with goes in dedup_source_finish().
 */
void source_resend_idle(void)
{
    uint64_t most = dedup_at_once(RESEND_AT_ONCE);

    if (src.state == DEDUP_SOURCE_STATE_DRAINING) {
        src.fig.resent_pages += dedup_outstanding_resend(&src.out, most);
    } else if (!src.out.count) {
        src.pace.resending = false;
    } else if (src.idle && (src.resend || src.postcopy)) {
        uint64_t n = dedup_pace_resend(&src.pace, now_us(), source_due());

        n = dedup_outstanding_resend(&src.out, MIN(n, most));
        src.fig.resent_pages += n;
        trace_dedup_source_resend(n, src.out.count, src.pace.link_rate,
                                 src.pace.fetch_rate);
    }
    src.idle = false;
}

/* Pages for which the idle link has room, if it can keep up at all */
static uint64_t spare(void)
{
    return dedup_pace_spare(&src.pace,
                            stat64_get(&mig_stats.dirty_pages_rate));
}

bool dedup_source_iterate(QEMUFile *f)
{
    if (!src.prepared) {
        return false;
    }
    DEDUP_HOLD("bitmap", "iterate");
    src.begun_us = now_us();
    source_redirtied_round();
    if (src.state == DEDUP_SOURCE_STATE_NEGOTIATING && negotiate(f)) {
        return true;
    }
    if (!src.running) {
        return false;
    }
    if (src.postcopy) {
        return source_postcopy_iterate(f);
    }
    source_take_answers();
    if (src.closing || src.state == DEDUP_SOURCE_STATE_DRAINING) {
        source_take_later(UINT64_MAX);
        dedup_deferred_release(&src.deferred);
    } else {
        if (src.out.count <= source_window() - source_window() / 4) {
            source_take_later(source_window() - src.out.count);
        }
        if (src.idle) {
            /* Before the review, which makes those with a new hint dirty */
            dedup_deferred_give_up(&src.deferred, spare());
        }
        dedup_deferred_review(&src.deferred, now_us());
    }
    source_resend_idle();
    trace_dedup_source_iterate(src.out.count, src.deferred.count,
                               src.deferred.paid, src.deferred.expired);
    if (source_send_extents(f)) {
        return true;
    }
    if (!src.closing) {
        source_kick_resolvers();
    }
    if (src.pass_done) {
        return source_send_hints(f);
    }
    if (!source_first_pass(f)) {
        src.pass_done = true;
        dedup_pace_forget_link(&src.pace, now_us(), link_bytes());
        end_first_pass(f);
    }
    return true;
}

/* Pages that are neither clean nor in the dirty bitmap */
uint64_t source_unsettled(void)
{
    return src.out.count + src.deferred.count + src.later;
}

void dedup_source_idle(bool done)
{
    int64_t now = now_us();

    if (src.prepared && src.state == DEDUP_SOURCE_STATE_NEGOTIATING &&
        src.started_us) {
        if (!src.scanned) {
            WITH_RCU_READ_LOCK_GUARD() {
                source_scan_hints();
            }
            discount(now_us() - now);
        } else {
            wait_answers(NEGOTIATE_US);
        }
        return;
    }
    if (src.running && src.postcopy && source_pass_due()) {
        /* A mutex is not fair: the return-path thread may wait for it */
        g_usleep(PASS_PAUSE_US);
        return;
    }
    if (!done) {
        return;
    }
    if (!src.running || !source_unsettled()) {
        discount(source_redirtied_pause());
        return;
    }
    dedup_pace_link(&src.pace, now, link_bytes(),
                    dedup_compress_running() ? 0 :
                    migration_rate_get() * (1000 / BUFFER_DELAY));
    if ((!src.deferred.count || !spare()) && !source_has_answers() &&
        !qatomic_read(&src.requested)) {
        wait_answers(dedup_pace_wait(&src.pace, now));
    }
    src.idle = true;
}

/*
 * The guest is stopped, so all that is not clean becomes dirty at once, a word
 * of the bitmaps at a time: 64 GiB of memory have 2 MiB of each.
 */
void dedup_source_finish(void)
{
    DEDUP_HOLD("bitmap", "finish");

    source_redirtied_finish();
    dedup_compress_last_round();
    if (!src.running) {
        return;
    }
    source_take_answers();
    src.nbatch = 0;
    if (!src.pass_done && !src.postcopy) {
        end_first_pass(src.f);
    }
    source_take_all_later();
    dedup_deferred_release(&src.deferred);
    /* In post-copy, pages are sent that are not taken off what is owed */
    src.fig.final_pages += src.postcopy ? dedup_outstanding_redirty(&src.out)
                                        : dedup_outstanding_pay(&src.out);
    src.running = src.hints_due = false;
    source_set_state(DEDUP_SOURCE_STATE_DONE);
    trace_dedup_source_finish(src.fig.final_pages);
}

/* Bytes that outstanding records add to what is pending */
static uint64_t pending_records(bool exact)
{
    int64_t now;

    source_redirtied_pass(exact);
    src.closing = false;
    if (!src.running || source_hints_pending() || !source_unsettled()) {
        return source_hints_pending();
    }
    /*
     * While the link waits for storage, let the bitmap be synchronised now
     * and then, as if nothing were outstanding, so that the link can do the
     * next round's work meanwhile.  Not sooner than without records, though:
     * a round sends the same hot pages again.  Not while resending: the link
     * is busy then.
     */
    now = now_us();
    if (exact) {
        src.last_exact_us = now;
    } else if (!src.pace.resending && now - src.last_exact_us >
               dedup_pace_round(&src.pace, source_unsettled())) {
        return 0;
    }
    return source_unsettled() << DEDUP_PAGE_BITS;
}

uint64_t dedup_source_pending(uint64_t dirty, bool exact)
{
    return dedup_compress_on_link(dirty) + pending_records(exact);
}

void dedup_bmap_set(RAMBlock *rb, unsigned long page)
{
    ram_dedup_count_dirty(!test_and_set_bit(page, rb->bmap));
}

uint64_t dedup_bmap_set_all(RAMBlock *rb, unsigned long *pages)
{
    size_t words = BITS_TO_LONGS(rb->max_length >> DEDUP_PAGE_BITS);
    uint64_t n = 0, new = 0;

    for (size_t i = 0; i < words; i++) {
        if (pages[i]) {
            new += ctpopl(pages[i] & ~rb->bmap[i]);
            rb->bmap[i] |= pages[i];
            n += ctpopl(pages[i]);
            pages[i] = 0;
        }
    }
    ram_dedup_count_dirty(new);
    return n;
}

bool dedup_source_hold_postcopy(void)
{
    return src.running && source_hold_for_hints();
}

/*
 * Little enough is pending, but sending what is outstanding in full would
 * take longer than its answers.  No new records meanwhile, so that this ends:
 * each record is answered, or resent when storage is slower or stalls.
 */
bool dedup_source_hold_switchover(void)
{
    int64_t now = now_us();

    if (migrate_downtime_limit() < dedup_inject.hold_below_ms &&
        !migration_in_postcopy()) {
        g_usleep(1000);
        return true;
    }
    if (!src.running) {
        return false;
    }
    if (src.postcopy) {
        return source_postcopy_hold(now);
    }
    if (source_hold_for_hints()) {
        return true;
    }
    if (source_halt_resolvers()) {
        /* With the guest stopped, all would wait for its read */
        g_usleep(100);
    } else if (!src.resend ||
               !dedup_pace_hold(&src.pace, source_unsettled())) {
        return false;
    }
    if (!src.hold_since_us) {
        src.hold_since_us = now;
    }
    src.closing = now - src.hold_since_us < HOLD_MAX_US;
    return src.closing;
}
