/*
 * Migration without duplicated content: what the rest of QEMU calls.
 *
 * The mechanism is described in migration/dedup/dedup-int.h, its wire
 * format in migration/dedup/wire.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_H
#define MIGRATION_DEDUP_H

#include "exec/cpu-common.h"
#include "qemu/atomic.h"
#include "qemu/iov.h"
#include "qemu/typedefs.h"

/*
 * Value of the MIG_CMD_PING by which a source asks whether the destination
 * knows records.  A stock destination answers PONG, a patched one HELLO
 * before the PONG.
 */
#define DEDUP_PING_MAGIC 0xded0b001

/* Marks an element of the dedup protocol in the RAM section (was COMPRESS) */
#define RAM_SAVE_FLAG_DEDUP 0x100

/*
 * Block layer.  Called after each successful guest read or write through
 * @blk; NULL while tracking is off, and always in the tools.  Any thread.
 */
typedef void BlkDedupTrackFunc(BlockBackend *blk, int64_t offset,
                               int64_t bytes, QEMUIOVector *qiov,
                               size_t qiov_offset);
extern BlkDedupTrackFunc *blk_dedup_track;

/* @dev: the guest's device, NULL if something else reads or writes */
static inline void blk_dedup_done(BlockBackend *blk, DeviceState *dev,
                                  int64_t offset, int64_t bytes,
                                  QEMUIOVector *qiov, size_t qiov_offset,
                                  int ret)
{
    BlkDedupTrackFunc *track = qatomic_read(&blk_dedup_track);

    if (unlikely(track) && ret >= 0 && dev && qiov) {
        track(blk, offset, bytes, qiov, qiov_offset);
    }
}

/* Source: all but rp_message() are called from the migration thread */

/* Ask the destination, if this migration is armed and can carry records */
void dedup_source_start(MigrationState *s);

/*
 * Beginning of a RAM iteration: take answers in, send what the destination
 * must know, send the records of the first pass.  True: nothing else may go
 * out in this iteration.  Called with the dirty bitmap's mutex held, in an
 * RCU critical section.
 */
bool dedup_source_iterate(QEMUFile *f);

/*
 * Post-copy begins, as finish(); with a destination that can do it, records
 * go on.  Same context as finish().
 */
void dedup_source_postcopy(void);

/* Post-copy was interrupted and is being recovered.  Likewise. */
void dedup_source_interrupted(void);

/* The destination requests a page: do not wait for answers.  Any thread. */
void dedup_source_requested(void);

/*
 * It requested page @page of @rb: if a record is outstanding, the page is
 * dirty again, and its content goes.  With the dirty bitmap's mutex held.
 */
void dedup_source_claim(RAMBlock *rb, unsigned long page);

/*
 * Try to send page @page of @rb, just taken out of the dirty bitmap, as a
 * record.  False: the caller sends its content, and whatever record is
 * outstanding for it no longer counts.  Same context as iterate().
 */
bool dedup_source_save_page(RAMBlock *rb, unsigned long page);

/* A record leaves no base for a delta; false only in a test that breaks it */
bool dedup_source_drops_delta(void);

/* Send what is batched.  Due before the bitmap is synchronised again. */
void dedup_source_flush(QEMUFile *f);

/*
 * Synchronise multifd's channels, and the main one with them, as
 * multifd_ram_flush_and_sync() does; 0 or -1.
 */
int dedup_source_sync(QEMUFile *f);

/*
 * The epoch of content that is queued for a multifd channel now, 0 if this
 * migration has none.  Migration thread.
 */
uint32_t dedup_source_epoch(void);

/*
 * Between two iterations: wait a moment if there is something to wait for.
 * @done: the scan found nothing dirty; the next iterate() may send
 * outstanding pages in full.  No lock held.
 */
void dedup_source_idle(bool done);

/*
 * The guest is stopped, its disks are about to be inactivated: nothing of
 * ours reads the metadata of an image any more when this returns.  BQL.
 */
void dedup_source_quiesce(void);

/*
 * The guest is stopped or post-copy begins: all that is outstanding becomes
 * dirty, no more records.  Called with the dirty bitmap's mutex held.
 */
void dedup_source_finish(void);

/*
 * Take page @page of @rb, whose content is due, into a batch that will be
 * compressed.  False: send it as it is.  Same context as iterate().
 */
bool dedup_compress_save_page(RAMBlock *rb, unsigned long page);

/* Whether batches are, or may be, sent: deltas (xbzrle) are not then */
bool dedup_compress_running(void);

/*
 * What is pending on the link if so many bytes of pages are dirty: less, since
 * they are compressed, and what outstanding records add.
 */
uint64_t dedup_source_pending(uint64_t dirty, bool exact);

/*
 * migration_transferred_bytes(), and the page content that was not sent because
 * a record took its place
 */
uint64_t dedup_source_transferred_bytes(void);

/* True while the switch-over is better put off for answers, or hints */
bool dedup_source_hold_switchover(void);

/* True while post-copy is better put off for hints that are being sent */
bool dedup_source_hold_postcopy(void);

/* Return-path thread: a MIG_RP_MSG_DEDUP, or a PONG to the magic PING */
void dedup_source_rp_message(const uint8_t *buf, size_t len);
void dedup_source_rp_pong(uint32_t value);

/* Destination */

/* The magic PING came in: answer it.  Migration coroutine. */
void dedup_incoming_hello(MigrationIncomingState *mis);

/* Parse one element after RAM_SAVE_FLAG_DEDUP; 0 or -errno */
int dedup_incoming_load(QEMUFile *f);

/*
 * Wait until all batches that were loaded are placed: a section ends, or
 * other channels are synchronised.  0 or -errno.
 */
int dedup_incoming_sync(void);

/*
 * Content for a page is about to be written by another path: whatever fetch
 * is under way for it must not touch the page any more.  @epoch: of the
 * content, 0 on the main channel, where it is in order.  Any thread.
 */
extern bool dedup_incoming_active;
void dedup_incoming_supersede_page(RAMBlock *rb, ram_addr_t offset,
                                   uint32_t epoch);

static inline void dedup_incoming_supersede(RAMBlock *rb, ram_addr_t offset,
                                            uint32_t epoch)
{
    if (unlikely(qatomic_read(&dedup_incoming_active))) {
        dedup_incoming_supersede_page(rb, offset, epoch);
    }
}

/*
 * No fetch may touch guest memory from here on: post-copy begins or is
 * interrupted, or the memory phase is over.  Does not wait for storage.  Idempotent.
 */
void dedup_incoming_stop(void);

/*
 * Post-copy discards pages of the RAM block @name, which will be sent again.
 * After stop().  Migration coroutine: others have their turn in between.
 */
void dedup_incoming_discard(const char *name, uint64_t start, uint64_t length);

/*
 * All memory has been received, or will be requested: -EINVAL, with a message, if a page was left
 * neither fetched nor sent.
 */
int dedup_incoming_finish(void);

/*
 * As finish(), and post-copy begins: records may come again, if that is
 * agreed upon.  Migration coroutine, before any page is placed.
 */
int dedup_incoming_listen(void);

/*
 * Around the placing of a page in post-copy.  False: it is in place already,
 * do nothing.  Any thread.
 */
extern bool dedup_incoming_lazy;
bool dedup_lazy_begin(RAMBlock *rb, void *host);
void dedup_lazy_end(RAMBlock *rb, void *host);

static inline bool dedup_incoming_place_begin(RAMBlock *rb, void *host)
{
    return !unlikely(qatomic_read(&dedup_incoming_lazy)) ||
           dedup_lazy_begin(rb, host);
}

static inline void dedup_incoming_place_end(RAMBlock *rb, void *host)
{
    if (unlikely(qatomic_read(&dedup_incoming_lazy))) {
        dedup_lazy_end(rb, host);
    }
}

/* Parse one element, in post-copy; 0 or -errno.  Listen thread. */
int dedup_lazy_load(QEMUFile *f, int channel);

/* A page is needed and will be requested: read it at once.  Any thread. */
void dedup_lazy_fault(RAMBlock *rb, ram_addr_t offset);

static inline void dedup_incoming_fault(RAMBlock *rb, ram_addr_t offset)
{
    if (unlikely(qatomic_read(&dedup_incoming_lazy))) {
        dedup_lazy_fault(rb, offset);
    }
}

/* The RAM's tables go away.  BQL. */
void dedup_incoming_cleanup(void);

/* Offered by migration/ram.c; called with the dirty bitmap's mutex held */
int ram_dedup_save_content(RAMBlock *rb, unsigned long page);
bool ram_dedup_take_dirty(RAMBlock *rb, unsigned long page);
/* So many bits of RAMBlock.bmap were set */
void ram_dedup_count_dirty(uint64_t pages);
/* Does the dirty log have the page since the last synchronisation? */
bool ram_dedup_redirtied(RAMBlock *rb, unsigned long page);

/*
 * Likewise, with no lock held: bring the dirty log up to date, which the
 * accelerator keeps, without a synchronisation.  Takes the BQL.
 */
void ram_dedup_read_log(void);

/* Offered by migration/migration.c */
int migrate_send_rp_dedup(MigrationIncomingState *mis, uint16_t len,
                          void *data);

/* Register notifiers; called once when the migration object is made */
void dedup_init(void);

#endif
