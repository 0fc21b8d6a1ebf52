/*
 * Destination: what arrives from the source
 *
 * The question whether records are understood, and the elements (wire.h).
 * All of it is checked against what SETUP named before it is used.  Migration
 * coroutine.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "qemu/coroutine.h"
#include "qemu/error-report.h"
#include "exec/target_page.h"
#include "../migration.h"
#include "../options.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "compress.h"
#include "compress-batch.h"
#include "hold.h"
#include "incoming-int.h"

/*
 * Records that wait, of 80 bytes each: a source that keeps to its window has
 * not so many that count, and of the others only what came lately.
 */
#define MAX_BACKLOG     (2 * 1024 * 1024 + 65536)

/* How long elements keep the main loop from its other work, at most */
#define TURN_US         1000
#define EXTENT_STEPS    16

void dedup_incoming_hello(MigrationIncomingState *mis)
{
    uint8_t msg[7];

    if (qemu_target_page_size() != DEDUP_PAGE_SIZE || migrate_colo() ||
        migrate_mapped_ram() || dedup_inject.no_hello || dedup_in.announced ||
        mis->state != MIGRATION_STATUS_ACTIVE) {    /* loadvm: a file */
        return;
    }
    msg[0] = DEDUP_MESSAGE_HELLO;
    dedup_put_be(&msg[1], DEDUP_WIRE_VERSION, 2);
    dedup_put_be(&msg[3], DEDUP_FEATURE_ZSTD | DEDUP_FEATURE_LAZY |
                          (dedup_inject.no_hints ? 0 : DEDUP_FEATURE_HINTS),
                 4);
    dedup_in.greeted = migrate_send_rp_dedup(mis, sizeof(msg), msg) == 0;
}

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
        dr->epochs = migrate_multifd() ? g_try_new0(uint32_t, dr->pages)
                                       : NULL;
        if (!dr->ids || (migrate_multifd() && !dr->epochs)) {
            g_clear_pointer(&dr->ids, g_free);
            g_clear_pointer(&dr->epochs, g_free);
            dr = NULL;
        }
    }
    pages = MIN(used, rb->used_length) >> DEDUP_PAGE_BITS;
    /* Each page once in the inbox and once in what is being read */
    dedup_in.max_backlog = MIN(dedup_in.max_backlog + 2 * pages,
                               MAX_BACKLOG);
    g_ptr_array_add(dedup_in.rams, dr);
    g_array_append_val(dedup_in.limits, pages);
    g_ptr_array_add(dedup_in.blocks, rb);
    return true;
}

static int load_setup(const uint8_t *buf, size_t len)
{
    const uint8_t *key;
    unsigned version, flags, reads, n;
    uint64_t bytes;
    DedupReader r;

    if (dedup_in.announced) {
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
    bytes = dedup_get_be(&r, 8);
    reads = dedup_get_be(&r, 4);
    dedup_incoming_begin(key);
    if (version != DEDUP_WIRE_VERSION) {
        dedup_in.refuse = true;
        return 0;
    }
    dedup_fetch_limit(dedup_in.fetch, bytes, reads);
    dedup_in.lazy = flags & DEDUP_SETUP_LAZY;
    if (flags & DEDUP_SETUP_TRACKED) {
        dedup_track(true);
    }
    if (flags & DEDUP_SETUP_COMPRESS && !dedup_inflate_start()) {
        return -ENOMEM;
    }
    n = dedup_get_be(&r, 2);
    if (n > DEDUP_WIRE_MAX_BLOCKS) {
        return -EINVAL;
    }
    WITH_RCU_READ_LOCK_GUARD() {
        DEDUP_HOLD("bql", "setup-element");

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

        if (r.bad || copy >= DEDUP_COPY__MAX ||
            !dedup_fetch_add_disk(dedup_in.fetch,
                                  g_strndup((const char *)path, plen),
                                  copy)) {
            return -EINVAL;
        }
    }
    if (r.bad || r.p != r.end) {
        return -EINVAL;
    }
    dedup_fetch_start(dedup_in.fetch);
    qatomic_set(&dedup_incoming_active, true);
    return 0;
}

static int load_extents(const uint8_t *buf, size_t len)
{
    DEDUP_HOLD("bql", "extents-element");
    unsigned disk, n;
    DedupReader r;
    DedupExtent e;

    dedup_reader_init(&r, buf, len);
    if (dedup_in.refuse) {
        return 0;
    }
    disk = dedup_get_be(&r, 2);
    n = dedup_get_be(&r, 2);
    if (r.bad || n > DEDUP_WIRE_MAX_EXTENTS ||
        disk >= dedup_fetch_disks(dedup_in.fetch) ||
        len != 4 + (size_t)n * DEDUP_WIRE_EXTENT_LEN) {
        return -EINVAL;
    }
    dedup_hold_steps(n * EXTENT_STEPS);
    while (n--) {
        if (!dedup_get_extent(&r, &e) ||
            !dedup_fetch_add_extent(dedup_in.fetch, disk, &e)) {
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
    DedupRam *dr;

    if (dedup_in.refuse) {
        dedup_answers_add(dedup_in.answers, id, DEDUP_ANSWER_IO);
        return 0;
    }
    if (id <= dedup_in.last_id || id > DEDUP_MAX_ID ||
        rec->block >= dedup_in.rams->len ||
        rec->page >= g_array_index(dedup_in.limits, uint64_t, rec->block) ||
        rec->disk >= dedup_fetch_disks(dedup_in.fetch) ||
        rec->sector > INT64_MAX / DEDUP_SECTOR - DEDUP_PAGE_SIZE) {
        error_report("dedup: record %u is out of bounds (block %u page %"
                     PRIu64 " disk %u sector %" PRIu64 ")", id, rec->block,
                     rec->page, rec->disk, rec->sector);
        return -EINVAL;
    }
    dedup_in.last_id = id;
    dedup_hold_steps(1);
    stat64_add(&dedup_in.records, 1);
    dr = g_ptr_array_index(dedup_in.rams, rec->block);
    if (!dr || (dedup_incoming_lazy &&
                qemu_ram_pagesize(dr->rb) != DEDUP_PAGE_SIZE)) {
        dedup_answers_add(dedup_in.answers, id, DEDUP_ANSWER_IO);
        return 0;
    }
    if (!dedup_incoming_expect(dr, rec->page, id)) {
        if (dedup_incoming_lazy) {
            /* In place.  The source may not know: zeros are placed here */
            dedup_answers_add(dedup_in.answers, id, DEDUP_ANSWER_OK);
        }
        return 0;                       /* the source knows */
    }
    if (b->n == DEDUP_WIRE_MAX_BATCH) {
        dedup_fetch_add(dedup_in.fetch, b->recs, b->n);
        b->n = 0;
    }
    fr = &b->recs[b->n++];
    fr->dr = dr;
    fr->page = rec->page;
    fr->sector = rec->sector;
    fr->id = id;
    fr->epoch = dedup_in.epoch;
    fr->disk = rec->disk;
    memcpy(fr->digest, rec->digest, DEDUP_DIGEST_LEN);
    return 0;
}

static int load_epoch(const uint8_t *buf, size_t len)
{
    DedupReader r;
    uint32_t epoch;

    dedup_reader_init(&r, buf, len);
    epoch = dedup_get_be(&r, 4);
    if (r.bad || r.p != r.end || epoch <= dedup_in.epoch) {
        return -EINVAL;
    }
    dedup_in.epoch = epoch;
    return 0;
}

static int load_records(const uint8_t *buf, size_t len)
{
    DEDUP_HOLD("bql", "records-element");
    g_autofree Batch *b = g_new(Batch, 1);
    int ret;

    if (!dedup_in.epoch && !dedup_in.refuse) {
        return -EINVAL;
    }
    if (dedup_fetch_backlog(dedup_in.fetch) > dedup_in.max_backlog / 2) {
        /* Storage hangs, and pages are sent again and again meanwhile */
        dedup_fetch_trim(dedup_in.fetch);
    }
    if (dedup_fetch_backlog(dedup_in.fetch) > dedup_in.max_backlog) {
        error_report("dedup: more records than pages");
        return -EINVAL;
    }
    b->n = 0;
    ret = dedup_decode_records(buf, len, load_record, b);
    dedup_fetch_add(dedup_in.fetch, b->recs, b->n);
    return ret ? -EINVAL : 0;
}

void dedup_incoming_give_way(void)
{
    static int64_t since;

    if (qemu_in_coroutine() && g_get_monotonic_time() - since > TURN_US) {
        aio_co_schedule(qemu_get_current_aio_context(),
                        qemu_coroutine_self());
        qemu_coroutine_yield();
        since = g_get_monotonic_time();
    }
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
    /* A source that sends faster than we take it would never let us yield */
    dedup_incoming_give_way();
    if (len > (type == DEDUP_ELEMENT_BATCH ? DEDUP_BATCH_PAYLOAD
                                           : DEDUP_WIRE_MAX_PAYLOAD) ||
        dedup_in.stopped ||
        (dedup_incoming_lazy && type != DEDUP_ELEMENT_RECORDS &&
         type != DEDUP_ELEMENT_EPOCH) ||
        (!dedup_in.announced && (type != DEDUP_ELEMENT_SETUP ||
                                 !dedup_in.greeted))) {
        error_report("dedup: element %u of %u bytes is not expected", type,
                     len);
        return -EINVAL;
    }
    if (type == DEDUP_ELEMENT_BATCH) {
        return dedup_inflate_load(f, len);
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
    case DEDUP_ELEMENT_EPOCH:
        ret = load_epoch(buf, len);
        break;
    case DEDUP_ELEMENT_HINT_DISKS:
        dedup_incoming_hint_disks(buf, len);
        break;
    case DEDUP_ELEMENT_HINTS:
        dedup_incoming_hints(buf, len);
        break;
    default:
        ret = -EINVAL;
    }
    if (ret) {
        error_report("dedup: element %u of %u bytes is malformed", type, len);
    }
    return ret;
}
