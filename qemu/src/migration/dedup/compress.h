/*
 * Compression of the pages that go through the link
 *
 *   compress-batch.c    the format of a batch; compressing one
 *   compress-rate.c     whether and how hard, against the link
 *   compress-source.c   the sender: batches, accounting
 *   compress-pool.c     its threads
 *   compress-link.c     how busy the link is
 *   compress-load.c     the destination: threads, placing
 *   compress-sample.c   how well the guest's memory would compress
 *
 * Two rules, one for each side:
 *
 * 1. No batch outlives the section of the stream it was begun in: the source
 *    ends a section only when all its batches are on their way, and the
 *    destination reads on behind its end only when all are placed.  The dirty
 *    bitmap is synchronised between sections alone, so a page is in a section
 *    once, and whatever comes for it later comes behind it.
 *
 * 2. A thread copies a page after its dirty bit was cleared, as content is:
 *    what the guest writes later makes it dirty again.  It compresses the
 *    copy; memory that changes under zstd would be no promise of its.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_COMPRESS_H
#define MIGRATION_DEDUP_COMPRESS_H

#include "dedup-int.h"

#define DEDUP_COMPRESS_THREADS_MAX  16
#define DEDUP_COMPRESS_LEVEL_MAX    9

/* Source */

typedef struct DedupCompressFigures {
    uint64_t pages;             /* sent in batches */
    uint64_t bytes;             /* that these took on the link */
    uint64_t plain_pages;       /* did not compress */
    uint64_t skipped_pages;     /* the link was faster */
    uint64_t ns;                /* processor time of the threads */
    unsigned threads;           /* started */
    int level;                  /* the last one used; 0: none */
} DedupCompressFigures;

/* BQL; @threads, @level: 0 for what is best */
void dedup_compress_want(bool want, unsigned threads, int level);
bool dedup_compress_wanted(void);
/* The destination can do it, and SETUP said that batches may come */
void dedup_compress_begin(QEMUFile *f);
/* BQL, migration thread gone */
void dedup_compress_end(void);
void dedup_compress_query(DedupCompressFigures *fig);
/* Content sent in batches less what these took, in bytes */
uint64_t dedup_compress_saved_bytes(void);
/* What so many bytes of dirty pages may take on the link */
uint64_t dedup_compress_on_link(uint64_t bytes);
/* Send all batches there are.  Migration thread. */
void dedup_compress_flush(void);
/* The guest is stopped: what comes now is its last round */
void dedup_compress_last_round(void);
void dedup_compress_init(void);

/* compress-link.c */
typedef struct DedupLink {
    int fd;                     /* -1: not a socket */
} DedupLink;

void dedup_link_init(DedupLink *l, QEMUFile *f);
/* Would the link wait for us?  False if there is no way to find out. */
bool dedup_link_idle(DedupLink *l);
/* Bytes a second, 0: there is none */
uint64_t dedup_link_limit(void);
/* Bytes that may still be sent in QEMU's window of 100 ms */
uint64_t dedup_link_room(void);

/* Destination */

/* SETUP said that batches may come; false, with a message: no memory */
bool dedup_inflate_start(void);
/* Payload of one batch, @len bytes.  0 or -errno.  Migration coroutine. */
int dedup_inflate_load(QEMUFile *f, uint32_t len);
/* Ends the threads.  Idempotent. */
void dedup_inflate_stop(void);
void dedup_inflate_query(DedupIncomingInfo *info);

#endif
