/*
 * Destination: the state of each page
 *
 * Four parties meet here: the migration coroutine (elements, content of the
 * main channel), multifd's receive threads (content), the fetcher's thread
 * (bytes from storage) and whoever ends it all.  They agree on a page through
 * its word in DedupRam.ids, see dedup-int.h, and through two counters:
 *
 *   live      words that are not NONE
 *   copying   fetchers between their look at @stopped and the end of their
 *             memcpy; stop() waits for it to become 0, which takes as long
 *             as copying one page and never depends on storage
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/processor.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-events-dedup.h"
#include "qapi/qapi-visit-dedup.h"
#include "migration/misc.h"
#include "../migration.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "aside.h"
#include "compress.h"
#include "hold.h"
#include "incoming-int.h"
#include "trace.h"

bool dedup_incoming_active;
DedupIncoming dedup_in;

/* Page words */

/* Wait for a memcpy under way; what the word holds then */
static uint32_t settled(uint32_t *word)
{
    uint32_t v;

    while ((v = qatomic_load_acquire(word)) & DEDUP_COPYING) {
        cpu_relax();
        sched_yield();
    }
    return v;
}

/*
 * Take the word from @v to NONE, if it still is @v: content has come.  A word
 * on which a copy is under way is no @v.
 */
static bool forget(uint32_t *word, uint32_t v)
{
    if (qatomic_cmpxchg(word, v, 0) != v) {
        return false;
    }
    stat64_add(&dedup_in.live, -1);
    if (!(v & DEDUP_MISSING)) {
        stat64_add(&dedup_in.superseded, 1);
    }
    return true;
}

bool dedup_incoming_expect(DedupRam *dr, uint64_t page, uint32_t id)
{
    uint32_t v, *word = &dr->ids[page];

    do {
        v = settled(word);
    } while (qatomic_cmpxchg(word, v, id) != v);
    if (!v) {
        stat64_add(&dedup_in.live, 1);
    } else if (!(v & DEDUP_MISSING)) {
        stat64_add(&dedup_in.superseded, 1);
    }
    if (qatomic_read(&dedup_incoming_lazy)) {
        smp_mb__after_rmw();            /* pairs with dedup_lazy_end() */
        if (!dedup_lazy_received(dr, page)) {
            return true;
        }
        forget(word, id);
        return false;
    }
    if (!dr->epochs || dedup_inject.no_epoch) {
        return true;
    }
    /*
     * Pairs with supersede_page(), which writes the epoch and then looks at
     * the word: one of the two sees what the other wrote.
     */
    smp_mb__after_rmw();
    if (qatomic_read(&dr->epochs[page]) < dedup_in.epoch) {
        return true;
    }
    forget(word, id);
    return false;
}

void dedup_incoming_forget(DedupRam *dr, uint64_t page)
{
    uint32_t v, *word = &dr->ids[page];

    /* Who copies finds it in place and forgets the word by itself */
    do {
        v = qatomic_read(word);
    } while (v && !(v & DEDUP_COPYING) && !forget(word, v));
}

/* The page holds what is of @epoch, or soon will; the newest one it had */
static uint32_t reach(DedupRam *dr, uint64_t page, uint32_t epoch)
{
    uint32_t was, *at = &dr->epochs[page];

    do {
        was = qatomic_read(at);
    } while (was < epoch && qatomic_cmpxchg(at, was, epoch) != was);
    return was;
}

void dedup_incoming_supersede_page(RAMBlock *rb, ram_addr_t offset,
                                   uint32_t epoch)
{
    DedupRam *dr = rb->dedup;
    uint64_t page = offset >> DEDUP_PAGE_BITS;
    uint32_t v, *word;

    if (!dr || !dr->ids || dedup_inject.no_supersede) {
        return;
    }
    word = &dr->ids[page];
    if (dr->epochs && epoch) {
        settled(word);          /* who copies writes the epoch first */
        if (reach(dr, page, epoch) > epoch) {
            qatomic_set(&dedup_in.overtaken, true);
        }
        smp_mb();               /* pairs with expect() */
    }
    while ((v = settled(word))) {
        if (forget(word, v)) {
            return;
        }
    }
}

/* Those from *@page on, so many as a turn takes; false: that was all */
static bool discard_part(const char *name, uint64_t *page, uint64_t end)
{
    uint64_t last;
    DEDUP_HOLD("bql", "discard");
    RAMBlock *rb;
    DedupRam *dr;

    RCU_READ_LOCK_GUARD();
    rb = qemu_ram_block_by_name(name);
    dr = rb ? rb->dedup : NULL;
    if (!dr || !dr->ids || !stat64_get(&dedup_in.live)) {
        return false;
    }
    end = MIN(end, dr->pages);
    last = MIN(end, MIN(end, dedup_at_once(DEDUP_STEPS)) + *page);
    dedup_hold_steps(last - MIN(last, *page));
    for (; *page < last; (*page)++) {
        uint32_t v = qatomic_read(&dr->ids[*page]);

        if (v) {
            forget(&dr->ids[*page], v);
        }
    }
    return *page < end;
}

void dedup_incoming_discard(const char *name, uint64_t start, uint64_t length)
{
    uint64_t page = start >> DEDUP_PAGE_BITS;
    uint64_t end = (start + length) >> DEDUP_PAGE_BITS;

    while (discard_part(name, &page, end)) {
        dedup_incoming_give_way();
    }
}

/*
 * Between enter() and leave(), stop() waits.  False: this fetcher's migration
 * is over, nothing may be touched.
 */
static bool enter(DedupFetch *f)
{
    qatomic_inc(&dedup_in.copying);
    smp_mb__after_rmw();
    return !qatomic_read(&dedup_in.stopped) &&
           qatomic_read(&dedup_in.fetch) == f;
}

static void leave(void)
{
    qatomic_dec(&dedup_in.copying);
}

bool dedup_incoming_wanted(DedupFetch *f, const DedupFetchRecord *rec)
{
    bool wanted = false;

    if (enter(f)) {
        wanted = qatomic_read(&rec->dr->ids[rec->page]) == rec->id;
    }
    leave();
    return wanted;
}

static void inject_delay(uint32_t us)
{
    if (unlikely(us)) {
        g_usleep(us);
    }
}

void dedup_incoming_place(DedupFetch *f, const DedupFetchRecord *rec,
                          unsigned slot, const void *data)
{
    RAMBlock *rb = rec->dr->rb;
    uint32_t *word;
    bool placed = false, failed = false;

    inject_delay(dedup_inject.pending_delay_us);
    if (enter(f)) {
        word = &rec->dr->ids[rec->page];
        placed = qatomic_cmpxchg(word, rec->id, rec->id | DEDUP_COPYING) ==
                 rec->id || dedup_inject.no_supersede;
        if (placed) {
            if (rec->dr->epochs) {
                reach(rec->dr, rec->page, rec->epoch);
            }
            inject_delay(dedup_inject.copy_delay_us);
            /* Before: in post-copy the guest may read into it right away */
            dedup_hint_set(rec->dr, rec->page, slot, rec->sector,
                           dedup_fingerprint(data));
            if (qatomic_read(&dedup_incoming_lazy)) {
                failed = !dedup_lazy_place(rec, data);
                stat64_add(&dedup_in.lazily, !failed);
            } else {
                memcpy(rb->host + (rec->page << DEDUP_PAGE_BITS), data,
                       DEDUP_PAGE_SIZE);
                if (!dedup_inject.no_recv_bit) {
                    /* multifd does not write a zero page that never arrived */
                    ramblock_recv_bitmap_set_offset(rb, rec->page <<
                                                    DEDUP_PAGE_BITS);
                }
            }
            if (failed) {
                qatomic_store_release(word, rec->id | DEDUP_MISSING);
                if (dedup_lazy_received(rec->dr, rec->page)) {
                    dedup_incoming_forget(rec->dr, rec->page);
                }
            } else {
                stat64_add(&dedup_in.live, -1);
                qatomic_store_release(word, 0);
            }
        }
    }
    if (failed) {
        stat64_add(&dedup_in.nack_io, 1);
        dedup_answers_add(dedup_in.answers, rec->id, DEDUP_ANSWER_IO);
    } else if (placed) {
        stat64_add(&dedup_in.fetched, 1);
        dedup_answers_add(dedup_in.answers, rec->id, DEDUP_ANSWER_OK);
    }
    leave();
}

void dedup_incoming_refuse(DedupFetch *f, const DedupFetchRecord *rec,
                           DedupAnswer why)
{
    bool refused = false;

    if (enter(f)) {
        refused = qatomic_cmpxchg(&rec->dr->ids[rec->page], rec->id,
                                  rec->id | DEDUP_MISSING) == rec->id;
    }
    if (refused) {
        stat64_add(why == DEDUP_ANSWER_DIGEST ? &dedup_in.nack_digest
                                              : &dedup_in.nack_io, 1);
        dedup_answers_add(dedup_in.answers, rec->id, why);
    }
    leave();
}

/* Beginning and end */

void dedup_incoming_begin(const uint8_t *key)
{
    DedupFetch *fetch = dedup_fetch_new(key);

    dedup_in.ever = dedup_in.announced = true;
    dedup_in.refuse = dedup_in.lazy = false;
    qatomic_set(&dedup_in.stopped, false);
    dedup_in.last_id = 0;
    dedup_in.epoch = 0;
    dedup_in.overtaken = false;
    dedup_in.max_backlog = 65536;
    stat64_init(&dedup_in.live, 0);
    stat64_init(&dedup_in.records, 0);
    stat64_init(&dedup_in.fetched, 0);
    stat64_init(&dedup_in.superseded, 0);
    stat64_init(&dedup_in.lazily, 0);
    stat64_init(&dedup_in.hints, 0);
    dedup_in.hint_error = NULL;
    dedup_in.hint_disks = dedup_in.hint_block = 0;
    dedup_in.hint_page = 0;
    stat64_init(&dedup_in.nack_digest, 0);
    stat64_init(&dedup_in.nack_io, 0);
    dedup_in.rams = g_ptr_array_new();
    dedup_in.limits = g_array_new(false, false, sizeof(uint64_t));
    dedup_in.blocks = g_ptr_array_new();
    dedup_in.answers = dedup_answers_new(fetch);
    qatomic_set(&dedup_in.fetch, fetch);
}

void dedup_incoming_stop(void)
{
    if (!dedup_in.announced || dedup_in.stopped) {
        return;
    }
    qatomic_set(&dedup_in.stopped, true);
    dedup_fetch_halt(dedup_in.fetch);
    smp_mb();                   /* pairs with enter() */
    /* Acquire: what fetchers wrote is seen, and memory is theirs no more */
    while (qatomic_load_acquire(&dedup_in.copying)) {
        cpu_relax();
        sched_yield();
    }
    trace_dedup_incoming_stop(stat64_get(&dedup_in.fetched),
                              stat64_get(&dedup_in.live));
}

int dedup_incoming_finish(void)
{
    uint64_t live;

    if (!dedup_in.announced) {
        return 0;
    }
    dedup_incoming_stop();
    live = stat64_get(&dedup_in.live);
    if (qatomic_read(&dedup_in.overtaken)) {
        error_report("dedup: content arrived after newer bytes of its page");
    } else if (live && !dedup_inject.no_supersede) {
        error_report("dedup: %" PRIu64 " pages were neither fetched nor sent",
                     live);
    } else {
        return 0;
    }
    /* The source takes it from here whether it may forget the guest */
    qemu_file_set_error(migration_incoming_get_current()->from_src_file,
                        -EINVAL);
    return -EINVAL;
}
void dedup_incoming_cleanup(void)
{
    MigrationIncomingState *mis = migration_incoming_get_current();
    DEDUP_HOLD("bql", "incoming-cleanup");
    DedupIncomingInfo *info;
    DedupFetch *fetch;
    GPtrArray *rubbish;
    int err;

    dedup_in.greeted = false;
    if (!dedup_in.announced) {
        return;
    }
    dedup_inflate_stop();
    dedup_incoming_stop();
    qatomic_set(&dedup_incoming_active, false);
    info = dedup_incoming_query();
    info->active = false;
    info->backlog = 0;
    dedup_in.last = *info;
    qapi_free_DedupRefusedDiskList(dedup_in.refused);
    dedup_in.refused = QAPI_CLONE(DedupRefusedDiskList, info->refused);
    qapi_event_send_x_dedup_incoming_done(info);
    qapi_free_DedupIncomingInfo(info);

    /*
     * A link that is gone must not keep the thread in a blocking write.  When
     * it was only what came over it that is wrong, the source is to hear it.
     */
    err = mis->from_src_file ? qemu_file_get_error(mis->from_src_file) : 0;
    if (err && err != -EINVAL && mis->to_src_file) {
        qemu_file_shutdown(mis->to_src_file);
    }
    g_clear_pointer(&dedup_in.answers, dedup_answers_free);
    fetch = dedup_in.fetch;
    qatomic_set(&dedup_in.fetch, NULL);
    dedup_fetch_stop(fetch);
    rubbish = dedup_rubbish_new();
    for (unsigned i = 0; i < dedup_in.rams->len; i++) {
        DedupRam *dr = g_ptr_array_index(dedup_in.rams, i);

        if (dr) {
            dedup_rubbish_add(rubbish, &dr->ids);
            dedup_rubbish_add(rubbish, &dr->epochs);
        }
    }
    dedup_rubbish_free(rubbish);
    g_clear_pointer(&dedup_in.rams, g_ptr_array_unref);
    g_clear_pointer(&dedup_in.limits, g_array_unref);
    g_clear_pointer(&dedup_in.blocks, g_ptr_array_unref);
    dedup_in.announced = false;
    qatomic_set(&dedup_incoming_lazy, false);
    qatomic_set(&dedup_in.stopped, false);
}

DedupIncomingInfo *dedup_incoming_query(void)
{
    DedupIncomingInfo *info;

    if (!dedup_in.ever) {
        return NULL;
    }
    info = g_new0(DedupIncomingInfo, 1);
    if (!dedup_in.fetch) {
        *info = dedup_in.last;
        info->hint_error = g_strdup(dedup_in.hint_error);
        info->refused = QAPI_CLONE(DedupRefusedDiskList, dedup_in.refused);
        info->has_refused = info->refused;
        return info;
    }
    info->active = !dedup_in.stopped;
    info->record_pages = stat64_get(&dedup_in.records);
    info->fetched_pages = stat64_get(&dedup_in.fetched);
    info->superseded_pages = stat64_get(&dedup_in.superseded);
    info->lazy_pages = stat64_get(&dedup_in.lazily);
    info->nack_digest = stat64_get(&dedup_in.nack_digest);
    info->nack_io = stat64_get(&dedup_in.nack_io);
    info->hint_pages = stat64_get(&dedup_in.hints);
    info->hint_error = g_strdup(dedup_in.hint_error);
    dedup_fetch_query(dedup_in.fetch, info);
    info->refused = dedup_fetch_refused(dedup_in.fetch);
    info->has_refused = info->refused;
    dedup_inflate_query(info);
    return info;
}
