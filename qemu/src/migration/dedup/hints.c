/*
 * Hints: the place on a disk that each guest page was read from or written
 * to last
 *
 * Recorded from the guest's own disk I/O, after it has completed (papers.md
 * P1.1, P1.2).  A page the guest writes to afterwards keeps its hint: a
 * fingerprint drops most of those when a migration comes, a digest the rest.
 * So there is no dirty logging outside of migrations.
 *
 * The table takes 8 bytes for each page of every 16 MiB that ever saw I/O,
 * 0.2 % of guest memory at most.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/rcu_queue.h"
#include "qemu/stats64.h"
#include "exec/target_page.h"
#include "exec/cpu-common.h"
#include "exec/ramlist.h"
#include "system/block-backend.h"
#include "aside.h"
#include "dedup-int.h"
#include "hold.h"

#define SLOT_SHIFT      57
#define SECTOR_SHIFT    16
#define SECTOR_MASK     ((1ULL << 41) - 1)
/* Of one request: more of it leaves no hints */
#define TRACK_MAX       (64LL << 20)

static struct {
    QemuMutex lock;             /* makes blocks, chunks and slots */
    QTAILQ_HEAD(, DedupRam) rams;
    BlockBackend *slots[DEDUP_MAX_SLOTS + 1];   /* 0 is not used */
    unsigned nslots;
    Stat64 held;
    Stat64 recorded;
    Stat64 memory;
} hints;

/* Nobody sees it any more, and nobody waits for this */
static void ram_free(void *opaque)
{
    DedupRam *dr = opaque;

    for (size_t i = 0; i < dr->nchunks; i++) {
        uint64_t *chunk = dr->chunks[i], n = 0;

        if (chunk) {
            for (unsigned k = 0; k < DEDUP_HINT_CHUNK; k++) {
                n += chunk[k] != 0;
            }
            stat64_add(&hints.held, -n);
            stat64_add(&hints.memory, -(uint64_t)DEDUP_HINT_CHUNK *
                                      sizeof(*chunk));
            g_free(chunk);
        }
    }
    stat64_add(&hints.memory, -(uint64_t)dr->nchunks * sizeof(dr->chunks[0]));
    g_free(dr->chunks);
    g_free(dr->ids);
    g_free(dr->epochs);
    g_free(dr->direct);
    g_free(dr->waiting);
    g_free(dr->later);
    g_free(dr->owed);
    g_free(dr->told);
    g_free(dr->redirtied);
    g_free(dr);
}

void dedup_ram_free(DedupRam *dr)
{
    dedup_aside(ram_free, dr);
}

DedupRam *dedup_ram_get(RAMBlock *rb)
{
    DedupRam *dr = qatomic_load_acquire(&rb->dedup);

    if (dr || !qemu_ram_is_migratable(rb) || !rb->host) {
        return dr;
    }
    QEMU_LOCK_GUARD(&hints.lock);
    dr = rb->dedup;
    if (!dr) {
        dr = g_new0(DedupRam, 1);
        dr->rb = rb;
        dr->host = rb->host;
        dr->pages = rb->max_length >> DEDUP_PAGE_BITS;
        dr->nchunks = DIV_ROUND_UP(dr->pages, DEDUP_HINT_CHUNK);
        dr->chunks = g_new0(uint64_t *, dr->nchunks);
        stat64_add(&hints.memory, dr->nchunks * sizeof(dr->chunks[0]));
        QTAILQ_INSERT_TAIL_RCU(&hints.rams, dr, next);
        qatomic_store_release(&rb->dedup, dr);
    }
    return dr;
}

DedupRam *dedup_ram_first(void)
{
    return QTAILQ_FIRST_RCU(&hints.rams);
}

DedupRam *dedup_ram_next(DedupRam *dr)
{
    return QTAILQ_NEXT_RCU(dr, next);
}

static int make_one(RAMBlock *rb, void *opaque)
{
    dedup_ram_get(rb);
    return 0;
}

void dedup_ram_make_all(void)
{
    qemu_ram_foreach_block(make_one, NULL);
}

static void ram_removed(RAMBlockNotifier *n, void *host, size_t size,
                        size_t max_size)
{
    DEDUP_HOLD("bql", "ram-removed");
    DedupRam *dr;

    QEMU_LOCK_GUARD(&hints.lock);
    QTAILQ_FOREACH(dr, &hints.rams, next) {
        if (dr->host == host) {
            QTAILQ_REMOVE_RCU(&hints.rams, dr, next);
            qatomic_set(&dr->rb->dedup, NULL);
            if (dr->ids) {
                /* A migration uses it and will free it; not dr->rb, though */
                qatomic_set(&dr->gone, true);
            } else {
                call_rcu(dr, dedup_ram_free, rcu);
            }
            return;
        }
    }
}

static RAMBlockNotifier ram_notifier = { .ram_block_removed = ram_removed };

/*
 * Slots are never given back: a backend at the address of one that is gone
 * takes over its slot and its stale hints, which verification finds out.
 * When all are taken (127 disks came and went) the newest go without hints.
 */
unsigned dedup_slot_of(BlockBackend *blk)
{
    unsigned n = qatomic_load_acquire(&hints.nslots);

    for (unsigned i = 1; i <= n; i++) {
        if (hints.slots[i] == blk) {
            return i;
        }
    }
    QEMU_LOCK_GUARD(&hints.lock);
    for (unsigned i = n + 1; i <= hints.nslots; i++) {
        if (hints.slots[i] == blk) {
            return i;
        }
    }
    if (hints.nslots == DEDUP_MAX_SLOTS) {
        return 0;
    }
    hints.slots[hints.nslots + 1] = blk;
    qatomic_store_release(&hints.nslots, hints.nslots + 1);
    return hints.nslots;
}

static uint64_t *hint_at(DedupRam *dr, uint64_t page, bool make)
{
    uint64_t *chunk, *other;

    if (page >= dr->pages) {
        return NULL;
    }
    chunk = qatomic_load_acquire(&dr->chunks[page / DEDUP_HINT_CHUNK]);
    if (!chunk && make) {
        chunk = g_new0(uint64_t, DEDUP_HINT_CHUNK);
        other = qatomic_cmpxchg(&dr->chunks[page / DEDUP_HINT_CHUNK], NULL,
                                chunk);
        if (other) {
            g_free(chunk);
            chunk = other;
        } else {
            stat64_add(&hints.memory, DEDUP_HINT_CHUNK * sizeof(*chunk));
        }
    }
    return chunk ? &chunk[page % DEDUP_HINT_CHUNK] : NULL;
}

bool dedup_hint_get(DedupRam *dr, uint64_t page, DedupHint *hint)
{
    uint64_t *at = hint_at(dr, page, false);
    uint64_t word = at ? qatomic_read(at) : 0;

    hint->word = word;
    hint->slot = word >> SLOT_SHIFT;
    hint->sector = word >> SECTOR_SHIFT & SECTOR_MASK;
    hint->fingerprint = word & 0xffff;
    return word != 0;
}

void dedup_hint_set(DedupRam *dr, uint64_t page, unsigned slot,
                    uint64_t sector, uint16_t fingerprint)
{
    uint64_t *at;

    if (!slot || sector > SECTOR_MASK) {
        return;
    }
    at = hint_at(dr, page, true);
    if (at && !qatomic_xchg(at, (uint64_t)slot << SLOT_SHIFT |
                                sector << SECTOR_SHIFT | fingerprint)) {
        stat64_add(&hints.held, 1);
    }
}

bool dedup_hint_fill(DedupRam *dr, uint64_t page, unsigned slot,
                     uint64_t sector, uint16_t fingerprint)
{
    uint64_t word = (uint64_t)slot << SLOT_SHIFT | sector << SECTOR_SHIFT |
                    fingerprint;
    uint64_t *at, old, seen;

    if (!slot || sector > SECTOR_MASK) {
        return false;
    }
    at = hint_at(dr, page, true);
    if (!at) {
        return false;
    }
    old = qatomic_read(at);
    while (!(old & 0xffff)) {
        seen = qatomic_cmpxchg(at, old, word);
        if (seen == old) {
            stat64_add(&hints.held, old ? 0 : 1);
            return true;
        }
        old = seen;
    }
    return false;
}

void dedup_hint_drop(DedupRam *dr, uint64_t page, uint64_t word)
{
    uint64_t *at = hint_at(dr, page, false);

    if (at && word && qatomic_cmpxchg(at, word, 0) == word) {
        stat64_add(&hints.held, -1);
    }
}

uint64_t dedup_hint_next(DedupRam *dr, uint64_t page)
{
    while (page < dr->pages) {
        uint64_t *chunk =
            qatomic_load_acquire(&dr->chunks[page / DEDUP_HINT_CHUNK]);
        uint64_t end = MIN(dr->pages, ROUND_UP(page + 1, DEDUP_HINT_CHUNK));

        for (; chunk && page < end; page++) {
            if (qatomic_read(&chunk[page % DEDUP_HINT_CHUNK])) {
                return page;
            }
        }
        if (chunk && !dedup_inject.no_bounds) {
            dedup_hold_steps(DEDUP_HINT_CHUNK / 64);
            return end;
        }
        page = end;
    }
    return dr->pages;
}

/* A piece of memory that holds the bytes at @offset of the disk */
static void track_piece(unsigned slot, char *base, uint64_t len,
                        uint64_t offset)
{
    char *page = (char *)ROUND_UP((uintptr_t)base, DEDUP_PAGE_SIZE);
    uint64_t skip = page - base;
    ram_addr_t at;
    RAMBlock *rb;
    DedupRam *dr;

    if (len < skip + DEDUP_PAGE_SIZE || (offset + skip) % DEDUP_SECTOR) {
        return;
    }
    rb = qemu_ram_block_from_host(page, false, &at);
    dr = rb ? dedup_ram_get(rb) : NULL;
    if (!dr || at % DEDUP_PAGE_SIZE) {
        return;
    }
    stat64_add(&hints.recorded, (len - skip) / DEDUP_PAGE_SIZE);
    for (; skip + DEDUP_PAGE_SIZE <= len; skip += DEDUP_PAGE_SIZE) {
        dedup_hint_set(dr, at >> DEDUP_PAGE_BITS, slot,
                       (offset + skip) / DEDUP_SECTOR,
                       dedup_fingerprint(base + skip));
        at += DEDUP_PAGE_SIZE;
    }
}

static void dedup_track_io(BlockBackend *blk, int64_t offset, int64_t bytes,
                           QEMUIOVector *qiov, size_t qiov_offset)
{
    unsigned slot = dedup_slot_of(blk);
    char *base = NULL;
    uint64_t len = 0;

    if (!slot) {
        return;
    }
    bytes = MIN(bytes, dedup_inject.no_bounds ? bytes : TRACK_MAX);
    DEDUP_HOLD("bql", "track-io");
    dedup_hold_steps(bytes / DEDUP_PAGE_SIZE);
    RCU_READ_LOCK_GUARD();
    /* Neighbours in the vector may be neighbours in memory: join them */
    for (int i = 0; i < qiov->niov && bytes > 0; i++) {
        char *p = qiov->iov[i].iov_base;
        uint64_t n = qiov->iov[i].iov_len;

        if (qiov_offset >= n) {
            qiov_offset -= n;
            continue;
        }
        p += qiov_offset;
        n = MIN(n - qiov_offset, bytes);
        qiov_offset = 0;
        bytes -= n;
        if (base && base + len == p) {
            len += n;
            continue;
        }
        if (base) {
            track_piece(slot, base, len, offset);
            offset += len;
        }
        base = p;
        len = n;
    }
    if (base) {
        track_piece(slot, base, len, offset);
    }
}

bool dedup_tracking(void)
{
    return qatomic_read(&blk_dedup_track) != NULL;
}

void dedup_track(bool enable)
{
    DedupRam *dr;

    if (enable) {
        if (qemu_target_page_size() == DEDUP_PAGE_SIZE) {
            qatomic_set(&blk_dedup_track, dedup_track_io);
        }
        return;
    }
    qatomic_set(&blk_dedup_track, NULL);
    RCU_READ_LOCK_GUARD();
    QTAILQ_FOREACH_RCU(dr, &hints.rams, next) {
        dr->forgotten = 0;
    }
}

/*
 * I/O that saw the pointer may still write to the table: words are cleared,
 * chunks stay.
 */
static void forget_chunk(uint64_t *chunk)
{
    uint64_t n = 0;

    for (unsigned i = 0; i < DEDUP_HINT_CHUNK; i++) {
        n += qatomic_read(&chunk[i]) && qatomic_xchg(&chunk[i], 0);
    }
    stat64_add(&hints.held, -n);
}

bool dedup_forget_hints(void)
{
    uint64_t left = dedup_at_once(DEDUP_STEPS);
    DEDUP_HOLD("bql", "forget-hints");
    DedupRam *dr;

    if (dedup_tracking()) {
        return false;           /* again: what is there now may be new */
    }
    RCU_READ_LOCK_GUARD();
    QTAILQ_FOREACH_RCU(dr, &hints.rams, next) {
        while (dr->forgotten < dr->nchunks) {
            uint64_t *chunk = qatomic_load_acquire(&dr->chunks[dr->forgotten]);
            unsigned steps = chunk ? DEDUP_HINT_CHUNK : 1;

            if (left < steps) {
                return true;
            }
            if (chunk) {
                forget_chunk(chunk);
            }
            dr->forgotten++;
            left -= steps;
            dedup_hold_steps(steps);
        }
    }
    return false;
}

void dedup_hints_query(DedupHintsInfo *info)
{
    info->pages = stat64_get(&hints.held);
    info->recorded = stat64_get(&hints.recorded);
    info->memory_bytes = stat64_get(&hints.memory);
}

void dedup_hints_init(void)
{
    qemu_mutex_init(&hints.lock);
    QTAILQ_INIT(&hints.rams);
    ram_block_notifier_add(&ram_notifier);
}
