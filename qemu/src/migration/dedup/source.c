/*
 * Source: which pages go as records, and what their answers mean
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
 *
 * PONG without HELLO, no return path, or anything else that stands in the
 * way: done at once, with a reason, and the migration is an ordinary one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/lockable.h"
#include "qapi/error.h"
#include "qapi/clone-visitor.h"
#include "qapi/qapi-visit-dedup.h"
#include "crypto/random.h"
#include "exec/target_page.h"
#include "migration/misc.h"
#include "system/block-backend.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "../multifd.h"
#include "../options.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "../savevm.h"
#include "dedup-int.h"
#include "deferred.h"
#include "outstanding.h"
#include "pace.h"
#include "trace.h"

#define HELLO_WAIT_US   (1000 * 1000)
#define RESOLVE_WAIT_US (2000 * 1000)
#define ITERATION_US    50000           /* as MAX_WAIT in ram.c */
#define ROUND_US        (1000 * 1000)
#define HOLD_MAX_US     (5000 * 1000)
#define NACK_MIN        512
/*
 * Outstanding records, 4 GiB of memory: the destination keeps 64 bytes for
 * each
 */
#define WINDOW          (1 << 20)

typedef struct SourceDisk {
    BlockBackend *blk;                  /* referenced */
    char *path;
    DedupCopy copy;
    int64_t length;
    DedupResolver *resolver;            /* shared disks */
    DedupExtents extents;
} SourceDisk;

typedef struct Answer {
    uint32_t first, count;
    DedupAnswer status;
} Answer;

static struct {
    /* Under the BQL */
    bool ever;
    DedupCopy copy;
    DedupDiskList *exceptions;
    bool steal;
    NotifierWithReturn notifier;

    /* Read by anyone, atomically */
    DedupSourceState state;
    char *reason;                       /* under @lock */

    /* Migration thread, from prepare() to release() */
    bool prepared;
    bool running;                       /* HELLO came, not finished yet */
    bool announced;                     /* SETUP went out */
    bool idle;                          /* the last scan found nothing */
    int64_t started_us;
    uint8_t key[DEDUP_KEY_LEN];
    GPtrArray *disks;
    uint8_t disk_of_slot[DEDUP_MAX_SLOTS + 1];  /* index + 1 */
    DedupOutstanding out;
    DedupDeferred deferred;
    DedupPace pace;
    unsigned pass_ram;
    uint64_t pass_page;
    bool pass_done;
    QEMUFile *f;
    DedupRecord batch[DEDUP_WIRE_MAX_BATCH];
    unsigned nbatch;
    int64_t last_exact_us;
    bool closing;                       /* holding the switch-over */
    uint64_t later;                     /* bits set in DedupRam.later */
    int64_t hold_since_us;

    /* Between the return-path thread and the migration thread */
    QemuMutex lock;
    QemuSemaphore wake;
    GArray *inbox;                      /* Answer */
    bool listening, hello, pong;
    uint64_t peer_backlog, peer_rate;

    /* Figures; peer and zero pages are QEMU's own until the end */
    DedupSourceInfo fig;
} src;

static int64_t now_us(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME) / 1000;
}

static void set_state(DedupSourceState state)
{
    trace_dedup_source_state(DedupSourceState_str(state));
    qatomic_set(&src.state, state);
}

static void G_GNUC_PRINTF(1, 2) set_reason(const char *fmt, ...)
{
    va_list ap;

    QEMU_LOCK_GUARD(&src.lock);
    if (!src.reason) {
        va_start(ap, fmt);
        src.reason = g_strdup_vprintf(fmt, ap);
        va_end(ap);
        trace_dedup_source_reason(src.reason);
    }
}

/* Why this migration cannot carry records, or NULL */
static const char *ineligible(void)
{
    if (qemu_target_page_size() != DEDUP_PAGE_SIZE) {
        return "the guest's pages are not 4 KiB";
    }
    if (migrate_mapped_ram()) {
        return "mapped-ram migration";
    }
    if (migrate_background_snapshot()) {
        return "background snapshot";
    }
    if (migrate_colo()) {
        return "COLO";
    }
    if (migrate_get_current()->rdma_migration) {
        return "RDMA migration";
    }
    if (!migrate_return_path() && !migrate_postcopy_ram()) {
        return "the migration has no return path";
    }
    return NULL;
}

static void disk_free(void *opaque)
{
    SourceDisk *d = opaque;

    dedup_resolver_free(d->resolver);
    dedup_extents_free(&d->extents);
    blk_unref(d->blk);
    g_free(d->path);
    g_free(d);
}

static void disk_prepare(BlockBackend *blk)
{
    DedupDiskList *x;
    DedupCopy copy = src.copy;
    unsigned slot;
    SourceDisk *d;
    char *path;

    if (!blk_get_attached_dev(blk) || !blk_is_inserted(blk) ||
        src.disks->len == DEDUP_WIRE_MAX_DISKS) {
        return;
    }
    for (x = src.exceptions; x; x = x->next) {
        if (blk_by_qdev_id(x->value->device, NULL) == blk) {
            if (x->value->has_use && !x->value->use) {
                return;
            }
            if (x->value->has_copy) {
                copy = x->value->copy;
            }
        }
    }
    slot = dedup_slot_of(blk);
    path = dedup_blk_path(blk);
    if (!slot || !path) {
        g_free(path);
        return;
    }
    d = g_new0(SourceDisk, 1);
    d->blk = blk;
    blk_ref(blk);
    d->path = path;
    d->copy = copy;
    d->length = blk_getlength(blk);
    if (copy == DEDUP_COPY_SHARED) {
        d->resolver = dedup_resolver_new(blk, slot);
    }
    g_ptr_array_add(src.disks, d);
    src.disk_of_slot[slot] = src.disks->len;
}

/* BQL, before the migration thread exists */
static void source_prepare(void)
{
    const char *why = ineligible();
    DedupRam *dr;
    Error *err = NULL;

    if (why) {
        set_reason("%s", why);
        set_state(DEDUP_SOURCE_STATE_DONE);
        return;
    }
    if (qcrypto_random_bytes(src.key, sizeof(src.key), &err) < 0) {
        set_reason("no random key: %s", error_get_pretty(err));
        error_free(err);
        set_state(DEDUP_SOURCE_STATE_DONE);
        return;
    }
    dedup_ram_make_all();
    dedup_outstanding_init(&src.out);
    dedup_deferred_init(&src.deferred);
    for (dr = dedup_ram_first(); dr; dr = dedup_ram_next(dr)) {
        if (migrate_ram_is_ignored(dr->rb) ||
            src.out.rams->len == DEDUP_WIRE_MAX_BLOCKS) {
            continue;
        }
        dr->ids = g_try_new0(uint32_t, dr->pages);
        dr->direct = bitmap_try_new(dr->pages);
        dr->waiting = bitmap_try_new(dr->pages);
        dr->later = bitmap_try_new(dr->pages);
        if (!dr->ids || !dr->direct || !dr->waiting || !dr->later) {
            g_clear_pointer(&dr->ids, g_free);
            g_clear_pointer(&dr->direct, g_free);
            g_clear_pointer(&dr->waiting, g_free);
            g_clear_pointer(&dr->later, g_free);
            continue;
        }
        dr->index = src.out.rams->len;
        g_ptr_array_add(src.out.rams, dr);
    }
    src.disks = g_ptr_array_new_with_free_func(disk_free);
    memset(src.disk_of_slot, 0, sizeof(src.disk_of_slot));
    for (BlockBackend *b = blk_all_next(NULL); b; b = blk_all_next(b)) {
        disk_prepare(b);
    }
    src.running = src.announced = src.idle = src.pass_done = false;
    src.started_us = 0;
    src.pass_ram = 0;
    src.pass_page = 0;
    src.nbatch = 0;
    src.last_exact_us = src.hold_since_us = 0;
    src.closing = false;
    src.later = 0;
    WITH_QEMU_LOCK_GUARD(&src.lock) {
        g_array_set_size(src.inbox, 0);
        src.hello = src.pong = false;
        src.listening = true;
    }
    src.prepared = true;
    set_state(DEDUP_SOURCE_STATE_NEGOTIATING);
}

/* BQL; the migration thread is gone or will not come back to us */
static void source_release(void)
{
    if (src.prepared) {
        src.fig.peer_pages = stat64_get(&mig_stats.normal_pages);
        src.fig.zero_pages = stat64_get(&mig_stats.zero_pages);
        WITH_QEMU_LOCK_GUARD(&src.lock) {
            src.listening = false;
        }
        src.running = src.prepared = false;
        dedup_outstanding_free(&src.out);
        dedup_deferred_free(&src.deferred);
        g_clear_pointer(&src.disks, g_ptr_array_unref);
    }
    g_clear_pointer(&src.exceptions, qapi_free_DedupDiskList);
    if (src.ever) {
        set_state(DEDUP_SOURCE_STATE_DONE);
    }
}

static int source_notify(NotifierWithReturn *n, MigrationEvent *e,
                         Error **errp)
{
    if (e->type == MIG_EVENT_PRECOPY_SETUP) {
        if (src.state == DEDUP_SOURCE_STATE_ARMED) {
            source_prepare();
        }
    } else if (src.state != DEDUP_SOURCE_STATE_IDLE) {
        source_release();
    }
    return 0;
}

void dedup_source_start(MigrationState *s)
{
    if (src.prepared) {
        dedup_pace_init(&src.pace, now_us(), 0);
        src.started_us = now_us();
        src.f = s->to_dst_file;
        qemu_savevm_send_ping(s->to_dst_file, DEDUP_PING_MAGIC);
    }
}

/* Answers */

void dedup_source_rp_pong(uint32_t value)
{
    if (value == DEDUP_PING_MAGIC) {
        WITH_QEMU_LOCK_GUARD(&src.lock) {
            src.pong = true;
        }
        qemu_sem_post(&src.wake);
    }
}

static void inbox_add(void *opaque, uint32_t first, uint32_t count,
                      DedupAnswer status)
{
    Answer a = { first, count, status };

    g_array_append_val(src.inbox, a);
}

void dedup_source_rp_message(const uint8_t *buf, size_t len)
{
    uint32_t backlog, rate;

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        if (!src.listening || len < 3) {
            return;
        }
        switch (buf[0]) {
        case DEDUP_MESSAGE_HELLO:
            src.hello = true;
            break;
        case DEDUP_MESSAGE_ANSWERS:
            /* What was decoded before an error is harmless: rule 2 */
            dedup_decode_answers(buf + 1, len - 1, &backlog, &rate,
                                 inbox_add, NULL);
            src.peer_backlog = backlog;
            src.peer_rate = (uint64_t)rate << 10;
            break;
        }
    }
    qemu_sem_post(&src.wake);
}

static void take_answer(uint32_t id, DedupAnswer status)
{
    uint64_t page;
    DedupRam *dr = dedup_outstanding_settle(&src.out, id, &page);
    DedupHint h;

    if (!dr) {
        return;                         /* superseded or stolen meanwhile */
    }
    if (status == DEDUP_ANSWER_OK) {
        src.fig.storage_pages++;
        return;
    }
    if (status == DEDUP_ANSWER_DIGEST) {
        src.fig.nack_digest++;
    } else {
        src.fig.nack_io++;
    }
    if (dedup_hint_get(dr, page, &h)) {
        unsigned disk = src.disk_of_slot[h.slot];

        if (disk && status == DEDUP_ANSWER_DIGEST) {
            SourceDisk *d = g_ptr_array_index(src.disks, disk - 1);

            /* Moved, perhaps; good for the next page of this neighbourhood */
            if (d->resolver) {
                dedup_resolver_want(d->resolver, h.sector * DEDUP_SECTOR);
            }
        }
        dedup_hint_drop(dr, page, h.word);
    }
    ram_dedup_set_dirty(dr->rb, page);
}

static void take_answers(void)
{
    g_autoptr(GArray) box = NULL;
    uint64_t nacks, before = src.out.count;

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        if (src.inbox->len) {
            box = src.inbox;
            src.inbox = g_array_new(false, false, sizeof(Answer));
        }
        src.fig.peer_backlog = src.peer_backlog;
        src.fig.peer_read_rate = src.peer_rate;
    }
    for (unsigned i = 0; box && i < box->len; i++) {
        Answer *a = &g_array_index(box, Answer, i);
        uint32_t end = MIN((uint64_t)a->first + a->count, src.out.next_id);

        for (uint32_t id = a->first; id < end; id++) {
            take_answer(id, a->status);
        }
    }
    dedup_pace_answers(&src.pace, now_us(), before - src.out.count,
                       src.out.count);

    nacks = src.fig.nack_digest + src.fig.nack_io;
    if (nacks > NACK_MIN && nacks > src.fig.storage_pages &&
        src.state == DEDUP_SOURCE_STATE_ACTIVE) {
        set_reason("the destination refused %" PRIu64 " of %" PRIu64
                   " records (%" PRIu64 " other bytes, %" PRIu64
                   " not readable)", nacks, nacks + src.fig.storage_pages,
                   src.fig.nack_digest, src.fig.nack_io);
        set_state(DEDUP_SOURCE_STATE_DRAINING);
    }
}

/* What goes out */

static void send_element(QEMUFile *f, unsigned type, const uint8_t *buf,
                         size_t len)
{
    qemu_put_be64(f, RAM_SAVE_FLAG_DEDUP);
    qemu_put_be16(f, type);
    qemu_put_be32(f, len);
    qemu_put_buffer(f, buf, len);
    ram_transferred_add(14 + len);
    src.fig.record_bytes += 14 + len;
}

static void put_be(GByteArray *a, uint64_t v, unsigned bytes)
{
    uint8_t buf[8];

    dedup_put_be(buf, v, bytes);
    g_byte_array_append(a, buf, bytes);
}

static bool send_setup(QEMUFile *f)
{
    g_autoptr(GByteArray) a = g_byte_array_new();

    put_be(a, DEDUP_WIRE_VERSION, 2);
    put_be(a, dedup_tracking(), 2);
    g_byte_array_append(a, src.key, DEDUP_KEY_LEN);
    put_be(a, src.out.rams->len, 2);
    for (unsigned i = 0; i < src.out.rams->len; i++) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, i);
        size_t len = strlen(dr->rb->idstr);

        put_be(a, len, 1);
        g_byte_array_append(a, (uint8_t *)dr->rb->idstr, len);
        put_be(a, dr->rb->used_length, 8);
    }
    put_be(a, src.disks->len, 2);
    for (unsigned i = 0; i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);
        size_t len = strlen(d->path);

        put_be(a, d->copy, 1);
        put_be(a, len, 2);
        g_byte_array_append(a, (uint8_t *)d->path, len);
    }
    if (a->len > DEDUP_WIRE_MAX_PAYLOAD) {
        return false;
    }
    send_element(f, DEDUP_ELEMENT_SETUP, a->data, a->len);
    return true;
}

/* What the resolvers have found since the last time */
static void send_extents(QEMUFile *f)
{
    for (unsigned i = 0; i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);
        DedupExtents found = { 0 };

        if (!d->resolver || !dedup_resolver_take(d->resolver, &found)) {
            continue;
        }
        for (unsigned at = 0; at < found.n; at += DEDUP_WIRE_MAX_EXTENTS) {
            unsigned n = MIN(found.n - at, DEDUP_WIRE_MAX_EXTENTS);
            g_autofree uint8_t *buf =
                g_malloc(4 + n * DEDUP_WIRE_EXTENT_LEN);
            uint8_t *p = dedup_put_be(buf, i, 2);

            p = dedup_put_be(p, n, 2);
            for (unsigned k = at; k < at + n; k++) {
                dedup_extents_add(&d->extents, &found.e[k]);
                p = dedup_put_extent(p, &found.e[k]);
            }
            send_element(f, DEDUP_ELEMENT_EXTENTS, buf, p - buf);
        }
        dedup_extents_free(&found);
    }
}

void dedup_source_flush(QEMUFile *f)
{
    g_autofree uint8_t *buf = NULL;
    size_t len;

    if (!src.nbatch) {
        return;
    }
    buf = g_malloc(DEDUP_WIRE_RECORDS_BOUND(src.nbatch));
    len = dedup_encode_records(buf, src.out.next_id - src.nbatch, src.batch,
                               src.nbatch);
    trace_dedup_source_flush(src.nbatch, len);
    send_element(f, DEDUP_ELEMENT_RECORDS, buf, len);
    src.nbatch = 0;
}

typedef enum Sent {
    SENT_RECORD,
    SENT_LATER,                 /* waits, in src.deferred or DedupRam.later */
    SENT_NOT,                   /* the content is due */
} Sent;

static uint64_t window(void)
{
    return dedup_inject.window ?: WINDOW;
}

static bool window_full(void)
{
    return src.out.count >= window();
}

/* There is room again: make up to @n of those that wait for it dirty */
static void take_later(uint64_t n)
{
    for (unsigned i = 0; i < src.out.rams->len && n && src.later; i++) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, i);
        uint64_t page = 0;

        while (n && src.later &&
               (page = find_next_bit(dr->later, dr->pages, page)) <
               dr->pages) {
            clear_bit(page, dr->later);
            ram_dedup_set_dirty(dr->rb, page);
            src.later--;
            n--;
        }
    }
}

static Sent try_record(DedupRam *dr, uint64_t page)
{
    uint8_t *host = dr->rb->host + (page << DEDUP_PAGE_BITS);
    DedupHint h;
    SourceDisk *d;
    DedupRecord *rec;

    if (src.closing || test_and_clear_bit(page, dr->direct) ||
        !dedup_hint_get(dr, page, &h) || !src.disk_of_slot[h.slot]) {
        return SENT_NOT;
    }
    if (h.fingerprint && h.fingerprint != dedup_fingerprint(host)) {
        src.fig.stale_hints++;
        if (dedup_tracking() &&
            dedup_deferred_add(&src.deferred, dr, page, h.word, now_us())) {
            return SENT_LATER;
        }
        dedup_hint_drop(dr, page, h.word);
        return SENT_NOT;
    }
    d = g_ptr_array_index(src.disks, src.disk_of_slot[h.slot] - 1);
    if (d->resolver
        ? !dedup_extents_find(&d->extents, h.sector * DEDUP_SECTOR,
                              DEDUP_PAGE_SIZE)
        : h.sector * DEDUP_SECTOR + DEDUP_PAGE_SIZE > d->length) {
        if (d->resolver) {
            dedup_resolver_want(d->resolver, h.sector * DEDUP_SECTOR);
        }
        src.fig.unresolved_hints++;
        return SENT_NOT;
    }
    if (buffer_is_zero(host, DEDUP_PAGE_SIZE)) {
        return SENT_NOT;
    }
    if (window_full()) {
        set_bit(page, dr->later);
        src.later++;
        return SENT_LATER;
    }
    if (src.nbatch == DEDUP_WIRE_MAX_BATCH) {
        dedup_source_flush(src.f);
    }
    if (!dedup_outstanding_add(&src.out, dr, page)) {
        return SENT_NOT;
    }
    rec = &src.batch[src.nbatch++];
    rec->block = dr->index;
    rec->page = page;
    rec->disk = src.disk_of_slot[h.slot] - 1;
    rec->sector = h.sector;
    dedup_digest(src.key, host, DEDUP_PAGE_SIZE, rec->digest);
    src.fig.record_pages++;
    return SENT_RECORD;
}

bool dedup_source_save_page(RAMBlock *rb, unsigned long page)
{
    Sent sent = SENT_NOT;
    DedupRam *dr;
    bool was;

    if (!src.running) {
        return false;
    }
    dr = rb->dedup;
    if (!dr || !dr->ids) {
        return false;
    }
    was = dr->ids[page] != 0;
    if (src.later && test_and_clear_bit(page, dr->later)) {
        src.later--;
    }
    if (src.state == DEDUP_SOURCE_STATE_ACTIVE) {
        sent = try_record(dr, page);
    }
    src.fig.superseded_pages += was;
    if (sent != SENT_RECORD) {
        dedup_outstanding_supersede(&src.out, dr, page);
    }
    if (sent != SENT_LATER) {
        dedup_deferred_done(&src.deferred, dr, page, sent == SENT_RECORD);
    }
    return sent != SENT_NOT;
}

bool dedup_source_drops_delta(void)
{
    return !dedup_inject.no_xbzrle_drop;
}

uint64_t dedup_source_saved_bytes(void)
{
    return qatomic_read(&src.fig.record_pages) << DEDUP_PAGE_BITS;
}

/* The course of it */

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

    /* Semaphores count: a burst of messages is one reason to wake up */
    if (qemu_sem_timedwait(&src.wake, DIV_ROUND_UP(us, 1000)) == 0) {
        while (qemu_sem_timedwait(&src.wake, 0) == 0) {
            ;
        }
    }
    discount(now_us() - start);
}

static bool resolvers_busy(void)
{
    for (unsigned i = 0; i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);

        if (d->resolver && dedup_resolver_busy(d->resolver)) {
            return true;
        }
    }
    return false;
}

/* True: come back later, send nothing yet */
static bool negotiate(QEMUFile *f)
{
    int64_t waited = now_us() - src.started_us;
    bool hello, pong;

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        hello = src.hello;
        pong = src.pong;
    }
    if (!hello) {
        if (!pong && waited < HELLO_WAIT_US) {
            wait_answers(DEDUP_PACE_WAIT_US);
            return true;
        }
        set_reason(pong ? "the destination does not know the protocol"
                        : "the destination did not answer in time");
        set_state(DEDUP_SOURCE_STATE_DONE);
        return false;
    }
    if (resolvers_busy() && waited < HELLO_WAIT_US + RESOLVE_WAIT_US) {
        wait_answers(1000);
        return true;
    }
    if (!send_setup(f)) {
        set_reason("too many disks or RAM blocks");
        set_state(DEDUP_SOURCE_STATE_DONE);
        return false;
    }
    src.running = true;
    set_state(DEDUP_SOURCE_STATE_ACTIVE);
    return false;
}

/*
 * True while there is more to do in the first pass, and room for it.  The
 * pages it has no room for are left to the scan.
 */
static bool first_pass(QEMUFile *f)
{
    int64_t start = now_us();
    unsigned n = 0;

    while (src.pass_ram < src.out.rams->len &&
           src.state == DEDUP_SOURCE_STATE_ACTIVE) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, src.pass_ram);
        uint64_t end = dr->rb->used_length >> DEDUP_PAGE_BITS;

        src.pass_page = dedup_hint_next(dr, src.pass_page);
        if (src.pass_page >= end) {
            src.pass_ram++;
            src.pass_page = 0;
            continue;
        }
        if (((n++ & 63) == 63 && (migration_rate_exceeded(f) ||
                                  now_us() - start > ITERATION_US)) ||
            window_full()) {
            break;
        }
        if (ram_dedup_take_dirty(dr->rb, src.pass_page) &&
            !dedup_source_save_page(dr->rb, src.pass_page)) {
            ram_dedup_set_dirty(dr->rb, src.pass_page);
        }
        src.pass_page++;
    }
    dedup_source_flush(f);
    /* Busy with digests, not with the link */
    discount(now_us() - start);
    return src.pass_ram < src.out.rams->len && !window_full() &&
           src.state == DEDUP_SOURCE_STATE_ACTIVE;
}

bool dedup_source_iterate(QEMUFile *f)
{
    if (!src.prepared) {
        return false;
    }
    if (src.state == DEDUP_SOURCE_STATE_NEGOTIATING && negotiate(f)) {
        return true;
    }
    if (!src.running) {
        return false;
    }
    take_answers();
    if (src.closing || src.state == DEDUP_SOURCE_STATE_DRAINING) {
        take_later(UINT64_MAX);
        dedup_deferred_release(&src.deferred);
    } else {
        if (src.out.count <= window() - window() / 4) {
            take_later(window() - src.out.count);
        }
        dedup_deferred_review(&src.deferred, now_us());
    }
    if (src.state == DEDUP_SOURCE_STATE_DRAINING) {
        src.fig.stolen_pages += dedup_outstanding_redirty(&src.out);
    } else if (!src.out.count) {
        src.pace.stealing = false;
    } else if (src.idle && src.steal) {
        uint64_t n = dedup_pace_steal(&src.pace, now_us(), src.out.count);

        n = dedup_outstanding_steal(&src.out, n);
        src.fig.stolen_pages += n;
        trace_dedup_source_steal(n, src.out.count, src.pace.link_rate,
                                 src.pace.fetch_rate);
    }
    src.idle = false;
    trace_dedup_source_iterate(src.out.count, src.deferred.count,
                               src.deferred.paid, src.deferred.expired);
    send_extents(f);
    for (unsigned i = 0; i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);

        if (d->resolver) {
            dedup_resolver_kick(d->resolver);
        }
    }
    if (src.pass_done) {
        return false;
    }
    if (!first_pass(f)) {
        src.pass_done = true;
        dedup_pace_forget_link(&src.pace, now_us(),
                               migration_transferred_bytes());
        /*
         * Records went ahead of the scan.  Content for the same pages, on
         * another channel, must not overtake them.
         */
        if (multifd_ram_sync_per_round() && !dedup_inject.no_flush) {
            multifd_ram_flush_and_sync(f);
        }
    }
    return true;
}

/* Pages that are neither clean nor in the dirty bitmap */
static uint64_t unsettled(void)
{
    return src.out.count + src.deferred.count + src.later;
}

void dedup_source_idle(void)
{
    int64_t now = now_us();

    if (!src.running || !unsettled()) {
        return;
    }
    dedup_pace_link(&src.pace, now, migration_transferred_bytes(),
                    migration_rate_get() * (1000 / BUFFER_DELAY));
    wait_answers(dedup_pace_wait(&src.pace, now));
    src.idle = true;
}

void dedup_source_finish(void)
{
    if (!src.running) {
        return;
    }
    take_answers();
    src.nbatch = 0;
    take_later(UINT64_MAX);
    dedup_deferred_release(&src.deferred);
    src.fig.final_pages += dedup_outstanding_redirty(&src.out);
    src.running = false;
    set_state(DEDUP_SOURCE_STATE_DONE);
    trace_dedup_source_finish(src.fig.final_pages);
}

uint64_t dedup_source_pending(bool exact)
{
    int64_t now;

    src.closing = false;
    if (!src.running || !unsettled()) {
        return 0;
    }
    /*
     * While the link waits for storage, let the bitmap be synchronised now
     * and then, as if nothing were outstanding, so that the link can do the
     * next round's work meanwhile.  Not often: a round sends the same hot
     * pages again.  Not while stealing: the link is busy then.
     */
    now = now_us();
    if (exact) {
        src.last_exact_us = now;
    } else if (!src.pace.stealing && now - src.last_exact_us > ROUND_US) {
        return 0;
    }
    return unsettled() << DEDUP_PAGE_BITS;
}

/*
 * Little enough is pending, but sending what is outstanding in full would
 * take longer than its answers.  No new records meanwhile, so that this ends:
 * each record is answered, or stolen when storage is slower or stalls.
 */
bool dedup_source_hold_switchover(void)
{
    int64_t now = now_us();

    if (!src.running || !src.steal ||
        !dedup_pace_hold(&src.pace, unsettled())) {
        return false;
    }
    if (!src.hold_since_us) {
        src.hold_since_us = now;
    }
    src.closing = now - src.hold_since_us < HOLD_MAX_US;
    return src.closing;
}

/* Control, under the BQL */

bool dedup_source_arm(bool has_copy, DedupCopy copy, DedupDiskList *disks,
                      bool steal, Error **errp)
{
    if (migration_is_running() || src.prepared) {
        error_setg(errp, "A migration is running; arm before it starts");
        return false;
    }
    for (DedupDiskList *x = disks; x; x = x->next) {
        if (!blk_by_qdev_id(x->value->device, errp)) {
            return false;
        }
    }
    qapi_free_DedupDiskList(src.exceptions);
    src.exceptions = QAPI_CLONE(DedupDiskList, disks);
    src.copy = has_copy ? copy : DEDUP_COPY_SHARED;
    src.steal = steal;
    src.ever = true;
    memset(&src.fig, 0, sizeof(src.fig));
    WITH_QEMU_LOCK_GUARD(&src.lock) {
        g_clear_pointer(&src.reason, g_free);
        src.peer_backlog = src.peer_rate = 0;
    }
    set_state(DEDUP_SOURCE_STATE_ARMED);
    return true;
}

void dedup_source_disarm(void)
{
    DedupSourceState was = qatomic_cmpxchg(&src.state,
                                           DEDUP_SOURCE_STATE_ACTIVE,
                                           DEDUP_SOURCE_STATE_DRAINING);

    if (was == DEDUP_SOURCE_STATE_ACTIVE) {
        set_reason("disarmed during the migration");
    } else if (was == DEDUP_SOURCE_STATE_ARMED) {
        g_clear_pointer(&src.exceptions, qapi_free_DedupDiskList);
        set_state(DEDUP_SOURCE_STATE_IDLE);
    }
}

DedupSourceInfo *dedup_source_query(void)
{
    DedupSourceInfo *info;

    if (!src.ever) {
        return NULL;
    }
    info = g_new0(DedupSourceInfo, 1);
    *info = src.fig;
    info->state = qatomic_read(&src.state);
    if (src.prepared) {
        info->peer_pages = stat64_get(&mig_stats.normal_pages);
        info->zero_pages = stat64_get(&mig_stats.zero_pages);
        info->outstanding = qatomic_read(&src.out.count);
    }
    WITH_QEMU_LOCK_GUARD(&src.lock) {
        info->reason = g_strdup(src.reason);
    }
    return info;
}

void dedup_source_init(void)
{
    qemu_mutex_init(&src.lock);
    qemu_sem_init(&src.wake, 0);
    src.inbox = g_array_new(false, false, sizeof(Answer));
    migration_add_notifier(&src.notifier, source_notify);
}
