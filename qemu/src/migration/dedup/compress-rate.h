/*
 * Is compressing faster than the link, and how hard is it worth to try?
 *
 * Pure arithmetic over what the sender reports.  A window is 50 ms of
 * sending.  In each:
 *
 *   on    Pages for which no thread was free while the link idled went as
 *         they are.  If these are most, compression is slower than the link:
 *         off.  Threads with little to do take the higher level, busy ones
 *         the lower.
 *   off   If the link was busy all the time, its rate is what was sent.  If
 *         the threads compress more than that, by what they did last: on.
 *         Not for a second after it went off, and longer each time.
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
    int64_t off_until, off_for;
    /* This window */
    int64_t begun;
    uint64_t sent;              /* bytes on the link, at its beginning */
    uint64_t compressed, skipped;       /* pages */
    int64_t busy;               /* of all threads */
    unsigned probes, probes_busy;
} DedupCompressRate;

/* @level: 0, or the one to keep */
void dedup_compress_rate_init(DedupCompressRate *r, int64_t now, int level);
/* A thread made @out bytes of @in, or gave up on them (0), in @ns */
void dedup_compress_rate_batch(DedupCompressRate *r, unsigned pages,
                               uint64_t in, uint64_t out, int64_t ns);
/* A page went as it is because the link idled and no thread was free */
void dedup_compress_rate_skipped(DedupCompressRate *r);
/* Compression is off; was the link busy just now? */
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
