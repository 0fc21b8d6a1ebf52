/*
 * Destination: the state of each page, and what arrives from the source
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
#include "qemu/stats64.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-events-dedup.h"
#include "qapi/qapi-visit-dedup.h"
#include "exec/target_page.h"
#include "migration/misc.h"
#include "../migration.h"
#include "../options.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "dedup-int.h"
#include "trace.h"

bool dedup_incoming_active;

static struct {
    bool ever;
    bool announced;             /* SETUP was parsed */
    bool refuse;                /* a SETUP we do not understand */
    GPtrArray *rams;            /* DedupRam or NULL, by index in SETUP */
    GArray *limits;             /* uint64_t: pages of each, from SETUP */
    uint32_t last_id;
    DedupFetch *fetch;
    DedupAnswers *answers;
    uint64_t max_backlog;

    bool stopped;
    int copying;
    Stat64 live;

    Stat64 records, fetched, superseded, nack_digest, nack_io;
    DedupIncomingInfo last;     /* once the fetcher is gone */
} in;

void dedup_incoming_hello(MigrationIncomingState *mis)
{
    uint8_t msg[3];

    if (qemu_target_page_size() != DEDUP_PAGE_SIZE || migrate_colo() ||
        migrate_mapped_ram() || dedup_inject.no_hello || in.announced) {
        return;
    }
    msg[0] = DEDUP_MESSAGE_HELLO;
    dedup_put_be(&msg[1], DEDUP_WIRE_VERSION, 2);
    migrate_send_rp_dedup(mis, sizeof(msg), msg);
}

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

void dedup_incoming_supersede_page(RAMBlock *rb, ram_addr_t offset)
{
    DedupRam *dr = rb->dedup;
    uint32_t v, *word;

    if (!dr || !dr->ids || dedup_inject.no_supersede) {
        return;
    }
    word = &dr->ids[offset >> DEDUP_PAGE_BITS];
    while ((v = settled(word))) {
        if (qatomic_cmpxchg(word, v, 0) == v) {
            stat64_add(&in.live, -1);
            if (!(v & DEDUP_MISSING)) {
                stat64_add(&in.superseded, 1);
            }
            return;
        }
    }
}

/*
 * Between enter() and leave(), stop() waits.  False: this fetcher's migration
 * is over, nothing may be touched.
 */
static bool enter(DedupFetch *f)
{
    qatomic_inc(&in.copying);
    smp_mb__after_rmw();
    return !qatomic_read(&in.stopped) && qatomic_read(&in.fetch) == f;
}

static void leave(void)
{
    qatomic_dec(&in.copying);
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
    bool placed = false;

    inject_delay(dedup_inject.pending_delay_us);
    if (enter(f)) {
        word = &rec->dr->ids[rec->page];
        placed = qatomic_cmpxchg(word, rec->id, rec->id | DEDUP_COPYING) ==
                 rec->id || dedup_inject.no_supersede;
        if (placed) {
            inject_delay(dedup_inject.copy_delay_us);
            memcpy(rb->host + (rec->page << DEDUP_PAGE_BITS), data,
                   DEDUP_PAGE_SIZE);
            if (!dedup_inject.no_recv_bit) {
                /* multifd does not write a zero page that never arrived */
                ramblock_recv_bitmap_set_offset(rb, rec->page <<
                                                DEDUP_PAGE_BITS);
            }
            dedup_hint_set(rec->dr, rec->page, slot, rec->sector,
                           dedup_fingerprint(data));
            stat64_add(&in.live, -1);
            qatomic_store_release(word, 0);
        }
    }
    if (placed) {
        stat64_add(&in.fetched, 1);
        dedup_answers_add(in.answers, rec->id, DEDUP_ANSWER_OK);
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
        stat64_add(why == DEDUP_ANSWER_DIGEST ? &in.nack_digest : &in.nack_io,
                   1);
        dedup_answers_add(in.answers, rec->id, why);
    }
    leave();
}

/* Elements */

static bool load_ram(DedupReader *r)
{
    unsigned len = dedup_get_be(r, 1);
    const uint8_t *name = dedup_get_bytes(r, len);
    uint64_t used = dedup_get_be(r, 8), pages;
    g_autofree char *id = NULL;
    DedupRam *dr = NULL;
    RAMBlock *rb;

    if (r->bad) {
        return false;
    }
    id = g_strndup((const char *)name, len);
    rb = qemu_ram_block_by_name(id);
    if (!rb || used > rb->max_length) {
        error_report("dedup: no RAM block '%s' of %" PRIu64 " bytes", id,
                     used);
        return false;
    }
    dr = dedup_ram_get(rb);
    if (dr && (dr->ids || migrate_ram_is_ignored(rb))) {
        error_report("dedup: RAM block '%s' is not expected", id);
        return false;
    }
    if (dr) {
        dr->ids = g_try_new0(uint32_t, dr->pages);
        dr = dr->ids ? dr : NULL;
    }
    pages = MIN(used, rb->used_length) >> DEDUP_PAGE_BITS;
    /* Each page once in the inbox and once in what is being read */
    in.max_backlog += 2 * pages;
    g_ptr_array_add(in.rams, dr);
    g_array_append_val(in.limits, pages);
    return true;
}

static int load_setup(const uint8_t *buf, size_t len)
{
    const uint8_t *key;
    unsigned version, flags, n;
    DedupFetch *fetch;
    DedupReader r;

    if (in.announced) {
        error_report("dedup: second SETUP");
        return -EINVAL;
    }
    dedup_reader_init(&r, buf, len);
    version = dedup_get_be(&r, 2);
    flags = dedup_get_be(&r, 2);
    key = dedup_get_bytes(&r, DEDUP_KEY_LEN);
    if (r.bad) {
        return -EINVAL;
    }
    in.ever = in.announced = true;
    in.refuse = false;
    qatomic_set(&in.stopped, false);
    in.last_id = 0;
    in.max_backlog = 65536;
    stat64_init(&in.live, 0);
    stat64_init(&in.records, 0);
    stat64_init(&in.fetched, 0);
    stat64_init(&in.superseded, 0);
    stat64_init(&in.nack_digest, 0);
    stat64_init(&in.nack_io, 0);
    in.rams = g_ptr_array_new();
    in.limits = g_array_new(false, false, sizeof(uint64_t));
    fetch = dedup_fetch_new(key);
    in.answers = dedup_answers_new(fetch);
    qatomic_set(&in.fetch, fetch);
    if (version != DEDUP_WIRE_VERSION) {
        in.refuse = true;
        return 0;
    }
    if (flags & 1) {
        dedup_track(true);
    }
    n = dedup_get_be(&r, 2);
    if (n > DEDUP_WIRE_MAX_BLOCKS) {
        return -EINVAL;
    }
    WITH_RCU_READ_LOCK_GUARD() {
        while (n--) {
            if (!load_ram(&r)) {
                return -EINVAL;
            }
        }
    }
    n = dedup_get_be(&r, 2);
    if (n > DEDUP_WIRE_MAX_DISKS) {
        return -EINVAL;
    }
    while (n--) {
        unsigned copy = dedup_get_be(&r, 1);
        unsigned plen = dedup_get_be(&r, 2);
        const uint8_t *path = dedup_get_bytes(&r, plen);

        if (r.bad || copy >= DEDUP_COPY__MAX) {
            return -EINVAL;
        }
        dedup_fetch_add_disk(in.fetch, g_strndup((const char *)path, plen),
                             copy);
    }
    if (r.bad || r.p != r.end) {
        return -EINVAL;
    }
    dedup_fetch_start(in.fetch);
    qatomic_set(&dedup_incoming_active, true);
    return 0;
}

static int load_extents(const uint8_t *buf, size_t len)
{
    unsigned disk, n;
    DedupReader r;
    DedupExtent e;

    dedup_reader_init(&r, buf, len);
    if (in.refuse) {
        return 0;
    }
    disk = dedup_get_be(&r, 2);
    n = dedup_get_be(&r, 2);
    if (r.bad || disk >= dedup_fetch_disks(in.fetch) ||
        len != 4 + (size_t)n * DEDUP_WIRE_EXTENT_LEN) {
        return -EINVAL;
    }
    while (n--) {
        if (!dedup_get_extent(&r, &e) ||
            !dedup_fetch_add_extent(in.fetch, disk, &e)) {
            return -EINVAL;
        }
    }
    return 0;
}

typedef struct Batch {
    DedupFetchRecord recs[DEDUP_WIRE_MAX_BATCH];
    unsigned n;
} Batch;

static int load_record(void *opaque, uint32_t id, const DedupRecord *rec)
{
    Batch *b = opaque;
    DedupFetchRecord *fr;
    uint32_t v, *word;
    DedupRam *dr;

    if (in.refuse) {
        dedup_answers_add(in.answers, id, DEDUP_ANSWER_IO);
        return 0;
    }
    if (id <= in.last_id || id > DEDUP_MAX_ID ||
        rec->block >= in.rams->len ||
        rec->page >= g_array_index(in.limits, uint64_t, rec->block) ||
        rec->disk >= dedup_fetch_disks(in.fetch) ||
        rec->sector > INT64_MAX / DEDUP_SECTOR - DEDUP_PAGE_SIZE) {
        error_report("dedup: record %u is out of bounds (block %u page %"
                     PRIu64 " disk %u sector %" PRIu64 ")", id, rec->block,
                     rec->page, rec->disk, rec->sector);
        return -EINVAL;
    }
    in.last_id = id;
    stat64_add(&in.records, 1);
    dr = g_ptr_array_index(in.rams, rec->block);
    if (!dr) {
        dedup_answers_add(in.answers, id, DEDUP_ANSWER_IO);
        return 0;
    }
    word = &dr->ids[rec->page];
    do {
        v = settled(word);
    } while (qatomic_cmpxchg(word, v, id) != v);
    if (!v) {
        stat64_add(&in.live, 1);
    } else if (!(v & DEDUP_MISSING)) {
        stat64_add(&in.superseded, 1);
    }

    if (b->n == DEDUP_WIRE_MAX_BATCH) {
        dedup_fetch_add(in.fetch, b->recs, b->n);
        b->n = 0;
    }
    fr = &b->recs[b->n++];
    fr->dr = dr;
    fr->page = rec->page;
    fr->sector = rec->sector;
    fr->id = id;
    fr->disk = rec->disk;
    memcpy(fr->digest, rec->digest, DEDUP_DIGEST_LEN);
    return 0;
}

static int load_records(const uint8_t *buf, size_t len)
{
    g_autofree Batch *b = g_new(Batch, 1);
    int ret;

    if (dedup_fetch_backlog(in.fetch) > in.max_backlog) {
        /* Storage hangs, and pages are sent again and again meanwhile */
        dedup_fetch_trim(in.fetch);
    }
    if (dedup_fetch_backlog(in.fetch) > in.max_backlog) {
        error_report("dedup: more records than pages");
        return -EINVAL;
    }
    b->n = 0;
    ret = dedup_decode_records(buf, len, load_record, b);
    dedup_fetch_add(in.fetch, b->recs, b->n);
    return ret ? -EINVAL : 0;
}

int dedup_incoming_load(QEMUFile *f)
{
    unsigned type = qemu_get_be16(f);
    uint32_t len = qemu_get_be32(f);
    g_autofree uint8_t *buf = NULL;
    int ret = qemu_file_get_error(f);

    if (ret) {
        return ret;
    }
    if (len > DEDUP_WIRE_MAX_PAYLOAD || in.stopped ||
        (!in.announced && type != DEDUP_ELEMENT_SETUP)) {
        error_report("dedup: element %u of %u bytes is not expected", type,
                     len);
        return -EINVAL;
    }
    buf = g_malloc(len);
    if (qemu_get_buffer(f, buf, len) != len) {
        return qemu_file_get_error(f) ?: -EIO;
    }
    switch (type) {
    case DEDUP_ELEMENT_SETUP:
        ret = load_setup(buf, len);
        break;
    case DEDUP_ELEMENT_EXTENTS:
        ret = load_extents(buf, len);
        break;
    case DEDUP_ELEMENT_RECORDS:
        ret = load_records(buf, len);
        break;
    default:
        ret = -EINVAL;
    }
    if (ret) {
        error_report("dedup: element %u of %u bytes is malformed", type, len);
    }
    return ret;
}

/* The end */

void dedup_incoming_stop(void)
{
    if (!in.announced || in.stopped) {
        return;
    }
    qatomic_set(&in.stopped, true);
    smp_mb();                   /* pairs with enter() */
    /* Acquire: what fetchers wrote is seen, and memory is theirs no more */
    while (qatomic_load_acquire(&in.copying)) {
        cpu_relax();
        sched_yield();
    }
    trace_dedup_incoming_stop(stat64_get(&in.fetched), stat64_get(&in.live));
}

int dedup_incoming_finish(void)
{
    uint64_t live;

    if (!in.announced) {
        return 0;
    }
    dedup_incoming_stop();
    live = stat64_get(&in.live);
    if (live && !dedup_inject.no_supersede) {
        error_report("dedup: %" PRIu64 " pages were neither fetched nor sent",
                     live);
        /* The source takes it from here whether it may forget the guest */
        qemu_file_set_error(migration_incoming_get_current()->from_src_file,
                            -EINVAL);
        return -EINVAL;
    }
    return 0;
}

void dedup_incoming_cleanup(void)
{
    MigrationIncomingState *mis = migration_incoming_get_current();
    DedupIncomingInfo *info;
    DedupFetch *fetch;
    int err;

    if (!in.announced) {
        return;
    }
    dedup_incoming_stop();
    qatomic_set(&dedup_incoming_active, false);
    info = dedup_incoming_query();
    info->active = false;
    info->backlog = 0;
    in.last = *info;
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
    g_clear_pointer(&in.answers, dedup_answers_free);
    fetch = in.fetch;
    qatomic_set(&in.fetch, NULL);
    dedup_fetch_stop(fetch);
    for (unsigned i = 0; i < in.rams->len; i++) {
        DedupRam *dr = g_ptr_array_index(in.rams, i);

        if (dr) {
            g_clear_pointer(&dr->ids, g_free);
        }
    }
    g_clear_pointer(&in.rams, g_ptr_array_unref);
    g_clear_pointer(&in.limits, g_array_unref);
    in.announced = false;
    qatomic_set(&in.stopped, false);
}

DedupIncomingInfo *dedup_incoming_query(void)
{
    DedupIncomingInfo *info;

    if (!in.ever) {
        return NULL;
    }
    info = g_new0(DedupIncomingInfo, 1);
    if (!in.fetch) {
        *info = in.last;
        return info;
    }
    info->active = !in.stopped;
    info->record_pages = stat64_get(&in.records);
    info->fetched_pages = stat64_get(&in.fetched);
    info->superseded_pages = stat64_get(&in.superseded);
    info->nack_digest = stat64_get(&in.nack_digest);
    info->nack_io = stat64_get(&in.nack_io);
    dedup_fetch_query(in.fetch, info);
    return info;
}
