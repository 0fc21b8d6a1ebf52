/*
 * Is compressing faster than the link, and how hard is it worth to try?
 *
 * Pure arithmetic over what the sender reports.  A window is 25 ms of
 * sending.  In each:
 *
 *   off   If the link was busy all the time, its rate is what was sent.  If
 *         the threads compress more than that, by what they did last: on.
 *         This is the state at the beginning, unless the bandwidth limit
 *         tells.
 *   on    Pages for which no thread was free while the link idled went as
 *         they are.  If these are most, compression is slower than the link:
 *         off.  If the link was busy all the time, that tells how fast pages
 *         get through, but not what holds them back: it may be the
 *         destination, which has to decompress.  If no more get through than
 *         did without: off.  So it is if processors are what is short, and
 *         there were pages enough to tell.  Threads with little to do take the higher level,
 *         busy ones the lower.
 *   trial As off, for a window, to find out what gets through without.
 *
 * Each decision holds for an eighth of a second, the next one for a quarter,
 * up to 16 s.  Links of less than some 150 Mbit/s need no trial: there are too
 * few batches in a window.
 *
 * Times in nanoseconds, rates in bytes a second.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_COMPRESS_RATE_H
#define MIGRATION_DEDUP_COMPRESS_RATE_H

#include <stdbool.h>
#include <stdint.h>

#define DEDUP_COMPRESS_LEVEL_LOW    1
#define DEDUP_COMPRESS_LEVEL_HIGH   3
/* Until it was measured: zstd -1 on a core of 2015 */
#define DEDUP_COMPRESS_SPEED        (300 * 1000 * 1000)

typedef struct DedupCompressRate {
    bool on;
    int level;
    bool forced;                /* the level: leave it as it is */
    double speed;               /* of one thread, of what goes in */
    double ratio;               /* out / in, of what was compressed */
    bool trial;                 /* off to find out what gets through then */
    double through;             /* bytes of pages, before the trial */
    double plain;               /* likewise before it was on; 0: unknown */
    int64_t until, hold;        /* of the last decision; how long the next */
    unsigned windows;           /* since it is on */
    /* This window */
    int64_t begun;              /* 0: no pages yet */
    uint64_t sent;              /* bytes on the link, at its beginning */
    uint64_t compressed, skipped;       /* pages */
    uint64_t content;           /* bytes of pages in batches, as they were */
    int64_t busy;               /* of all threads */
    unsigned probes, probes_busy;
} DedupCompressRate;

/* @level: 0, or the one to keep; @limit: of the link, 0: unknown */
void dedup_compress_rate_init(DedupCompressRate *r, int64_t now, int level,
                              uint64_t limit, unsigned threads);
/* A thread made @out bytes of @in, or gave up on them (0), in @ns */
void dedup_compress_rate_batch(DedupCompressRate *r, unsigned pages,
                               uint64_t in, uint64_t out, int64_t ns);
/* A page went as it is because the link idled and no thread was free */
void dedup_compress_rate_skipped(DedupCompressRate *r);
/* Was the link busy just now? */
void dedup_compress_rate_probe(DedupCompressRate *r, bool busy);
/* @sent bytes are on the link in all; may end the window */
void dedup_compress_rate_window(DedupCompressRate *r, int64_t now,
                                uint64_t sent, unsigned threads);
/*
 * Pages to put into a batch if @room bytes more may be sent, with @waiting
 * pages in batches that are not sent yet; at least 1
 */
unsigned dedup_compress_rate_pages(const DedupCompressRate *r, uint64_t room,
                                   unsigned waiting, unsigned most);

#endif
