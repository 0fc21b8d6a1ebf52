/*
 * Source: what goes out
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "system/block-backend.h"
#include "../migration-stats.h"
#include "../multifd.h"
#include "../options.h"
#include "../qemu-file.h"
#include "../ram.h"
#include "hold.h"
#include "source-int.h"
#include "trace.h"

/*
 * Outstanding records, 4 GiB of memory: the destination keeps 64 bytes for
 * each
 */
#define WINDOW          (1 << 20)
/* With the dirty bitmap's mutex held: extents, pages that wait for room */
#define EXTENTS_AT_ONCE 2048
#define EXTENT_STEPS    16
#define LATER_AT_ONCE   (DEDUP_STEPS / 2)

void source_send_element(QEMUFile *f, unsigned type, const uint8_t *buf,
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

bool source_send_setup(QEMUFile *f, bool compress)
{
    g_autoptr(GByteArray) a = g_byte_array_new();

    put_be(a, DEDUP_WIRE_VERSION, 2);
    put_be(a, (dedup_tracking() ? DEDUP_SETUP_TRACKED : 0) |
              (compress ? DEDUP_SETUP_COMPRESS : 0) |
              (src.lazy ? DEDUP_SETUP_LAZY : 0), 2);
    g_byte_array_append(a, src.key, DEDUP_KEY_LEN);
    put_be(a, src.limits.bytes, 8);
    put_be(a, src.limits.reads, 4);
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
    source_send_element(f, DEDUP_ELEMENT_SETUP, a->data, a->len);
    return true;
}

static void send_extents(QEMUFile *f, unsigned disk, uint8_t *buf,
                         unsigned n)
{
    dedup_put_be(dedup_put_be(buf, disk, 2), n, 2);
    source_send_element(f, DEDUP_ELEMENT_EXTENTS, buf,
                        4 + n * DEDUP_WIRE_EXTENT_LEN);
}

/* What the resolvers have found since the last time */
bool source_send_extents(QEMUFile *f)
{
    uint64_t left = dedup_at_once(EXTENTS_AT_ONCE);

    for (unsigned i = 0; i < src.disks->len; i++) {
        SourceDisk *d = g_ptr_array_index(src.disks, i);
        DedupExtents found = { 0 };
        g_autofree uint8_t *buf = NULL;
        unsigned leaf = 0, k = 0, n = 0;
        const DedupExtent *e;

        if (!left) {
            return true;
        }
        n = d->resolver ? dedup_resolver_take(d->resolver, &found,
                                              MIN(left, UINT_MAX)) : 0;
        if (!n) {
            continue;
        }
        left -= n;
        dedup_hold_steps(n * EXTENT_STEPS);
        n = 0;
        while ((e = dedup_extents_nth(&found, &leaf, &k))) {
            if (!buf) {
                buf = g_malloc(4 + DEDUP_WIRE_MAX_EXTENTS *
                                   DEDUP_WIRE_EXTENT_LEN);
            }
            if (dedup_extents_add(&d->extents, e, &src.leaves)) {
                dedup_put_extent(buf + 4 + n++ * DEDUP_WIRE_EXTENT_LEN, e);
            }
            if (n == DEDUP_WIRE_MAX_EXTENTS) {
                send_extents(f, i, buf, n);
                n = 0;
            }
        }
        if (n) {
            send_extents(f, i, buf, n);
        }
        dedup_extents_free(&found);
    }
    return !left;
}

uint32_t dedup_source_epoch(void)
{
    return src.prepared ? stat64_get(&mig_stats.dirty_sync_count) : 0;
}

int dedup_source_sync(QEMUFile *f)
{
    dedup_source_flush(f);
    src.unsynced = 0;
    return multifd_ram_flush_and_sync(f);
}

/*
 * A record must not be followed by content of an earlier epoch, which a
 * multifd channel may still hold: see "Order" in wire.h.  Ordinarily the
 * channels were synchronised when the scan began anew; not if it was begun
 * anew because a RAM block came or went.
 */
static bool order_records(void)
{
    uint32_t epoch = dedup_source_epoch();
    int ret;

    if (!src.unsynced || src.unsynced == epoch || dedup_inject.no_flush) {
        return true;
    }
    ret = dedup_source_sync(src.f);
    if (ret < 0) {
        qemu_file_set_error(src.f, ret);
    }
    return ret >= 0;
}

void source_flush_records(QEMUFile *f)
{
    g_autofree uint8_t *buf = NULL;
    uint8_t epoch[4];
    size_t len;

    if (!src.nbatch) {
        return;
    }
    if (src.epoch_sent != dedup_source_epoch()) {
        src.epoch_sent = dedup_source_epoch();
        dedup_put_be(epoch, src.epoch_sent, sizeof(epoch));
        source_send_element(f, DEDUP_ELEMENT_EPOCH, epoch, sizeof(epoch));
    }
    buf = g_malloc(DEDUP_WIRE_RECORDS_BOUND(src.nbatch));
    len = dedup_encode_records(buf, src.out.next_id - src.nbatch, src.batch,
                               src.nbatch);
    trace_dedup_source_flush(src.nbatch, len);
    source_send_element(f, DEDUP_ELEMENT_RECORDS, buf, len);
    src.nbatch = 0;
}

void dedup_source_flush(QEMUFile *f)
{
    DEDUP_HOLD("bitmap", "flush");

    source_flush_records(f);
    dedup_compress_flush();
}

typedef enum Sent {
    SENT_RECORD,
    SENT_LATER,                 /* waits, in src.deferred or DedupRam.later */
    SENT_NOT,                   /* the content is due */
} Sent;

uint64_t source_window(void)
{
    return dedup_inject.window ?: WINDOW;
}

bool source_window_full(void)
{
    return src.out.count >= source_window();
}

/* There is room again: make up to @n of those that wait for it dirty */
void source_take_later(uint64_t n)
{
    n = MIN(n, dedup_at_once(LATER_AT_ONCE));
    for (unsigned i = 0; i < src.out.rams->len && n && src.later; i++) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, i);
        uint64_t page = 0;

        while (n && src.later &&
               (page = find_next_bit(dr->later, dr->pages, page)) <
               dr->pages) {
            clear_bit(page, dr->later);
            dedup_set_dirty(dr, page);
            src.later--;
            n--;
            dedup_hold_steps(1);
        }
        dedup_hold_steps(DEDUP_BITMAP_STEPS(dr->pages));
    }
}

void source_take_all_later(void)
{
    for (unsigned i = 0; i < src.out.rams->len && src.later; i++) {
        DedupRam *dr = g_ptr_array_index(src.out.rams, i);

        dedup_set_all_dirty(dr, dr->later);
        dedup_hold_steps(DEDUP_BITMAP_STEPS(dr->pages));
    }
    src.later = 0;
}

static Sent try_record(DedupRam *dr, uint64_t page)
{
    uint8_t *host = dr->rb->host + (page << DEDUP_PAGE_BITS);
    DedupHint h;
    SourceDisk *d;
    DedupRecord *rec;

    if (src.closing || !dedup_hint_get(dr, page, &h) || !src.disk_of_slot[h.slot]) {
        return SENT_NOT;
    }
    /* Placed at once, without what was there before */
    if (src.postcopy && qemu_ram_pagesize(dr->rb) != DEDUP_PAGE_SIZE) {
        return SENT_NOT;
    }
    if (h.fingerprint && h.fingerprint != dedup_fingerprint(host)) {
        src.fig.stale_hints++;
        if (dedup_tracking() && !src.postcopy &&
            dedup_deferred_add(&src.deferred, dr, page, h.word, now_us())) {
            return SENT_LATER;
        }
        dedup_hint_drop(dr, page, h.word);
        return SENT_NOT;
    }
    d = g_ptr_array_index(src.disks, src.disk_of_slot[h.slot] - 1);
    if (src.postcopy && !d->resolver) {
        return SENT_NOT;        /* read through a node that the guest uses */
    }
    if (d->resolver
        ? !dedup_extents_find(&d->extents, h.sector * DEDUP_SECTOR,
                              DEDUP_PAGE_SIZE)
        : h.sector * DEDUP_SECTOR + DEDUP_PAGE_SIZE > d->length) {
        if (d->resolver && !src.postcopy) {
            dedup_resolver_want(d->resolver, h.sector * DEDUP_SECTOR);
        }
        src.fig.unresolved_hints++;
        return SENT_NOT;
    }
    if (!dedup_inject.zero_records && buffer_is_zero(host, DEDUP_PAGE_SIZE)) {
        return SENT_NOT;
    }
    if (source_window_full()) {
        set_bit(page, dr->later);
        src.later++;
        return SENT_LATER;
    }
    if (!order_records()) {
        return SENT_NOT;
    }
    if (src.nbatch == DEDUP_WIRE_MAX_BATCH) {
        source_flush_records(src.f);
    }
    if (!dedup_outstanding_add(&src.out, dr, page)) {
        return SENT_NOT;
    }
    rec = &src.batch[src.nbatch++];
    rec->block = dr->index;
    rec->page = page;
    rec->disk = src.disk_of_slot[h.slot] - 1;
    rec->sector = h.sector;
    dedup_digest(src.key, host, rec->digest);
    src.fig.record_pages++;
    return SENT_RECORD;
}

bool dedup_source_save_page(RAMBlock *rb, unsigned long page)
{
    /* With postcopy-preempt, this is called without the mutex */
    if (src.postcopy && migrate_postcopy_preempt()) {
        return false;
    }
    return source_put_off(rb, page) || source_save_page(rb, page);
}

bool source_save_page(RAMBlock *rb, unsigned long page)
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
    was = dedup_is_outstanding(&src.out, dr, page);
    clear_bit(page, dr->told);
    if (src.later && test_and_clear_bit(page, dr->later)) {
        src.later--;
    }
    if (!test_and_clear_bit(page, dr->direct) &&
        src.state == DEDUP_SOURCE_STATE_ACTIVE) {
        sent = try_record(dr, page);
    }
    src.fig.superseded_pages += was;
    if (sent != SENT_RECORD) {
        dedup_outstanding_supersede(&src.out, dr, page);
    }
    if (sent == SENT_NOT) {
        clear_bit(page, dr->owed);
        if (migrate_multifd()) {
            src.unsynced = dedup_source_epoch();
        }
    }
    if (sent != SENT_LATER) {
        dedup_deferred_done(&src.deferred, dr, page, sent == SENT_RECORD);
    }
    return sent != SENT_NOT;
}

bool dedup_source_drops_delta(void)
{
    return !src.put_off_last && !dedup_inject.no_xbzrle_drop;
}

uint64_t dedup_source_transferred_bytes(void)
{
    return migration_transferred_bytes() +
           ((qatomic_read(&src.fig.record_pages) +
             qatomic_read(&src.fig.deferred_pages)) << DEDUP_PAGE_BITS) +
           dedup_compress_saved_bytes();
}
