/*
 * Compression against the link, see compress-rate.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "compress-rate.h"

#define MS              1000000
#define WINDOW          (50 * MS)
#define OFF_MIN         (1000 * (int64_t)MS)
#define OFF_MAX         (16 * OFF_MIN)
#define PAGES_MIN       256         /* fewer tell nothing */
#define PROBES_MIN      8
#define MARGIN          1.25        /* compression over the link */
#define IDLE            0.2         /* of a thread's time at the low level */
#define BUSY            0.6         /* likewise at the high one */
#define RATIO           0.25        /* until it was measured */
#define PAGE            4096

void dedup_compress_rate_init(DedupCompressRate *r, int64_t now, int level)
{
    memset(r, 0, sizeof(*r));
    r->on = true;
    r->forced = level;
    r->level = level ? level : DEDUP_COMPRESS_LEVEL_LOW;
    r->speed = DEDUP_COMPRESS_SPEED;
    r->ratio = RATIO;
    r->begun = now;
    r->off_for = OFF_MIN;
}

void dedup_compress_rate_batch(DedupCompressRate *r, unsigned pages,
                               uint64_t in, uint64_t out, int64_t ns)
{
    r->busy += ns;
    if (!out) {
        return;                     /* sent as it is: no time on the link won */
    }
    r->compressed += pages;
    if (ns > 0) {
        r->speed += (in * 1e9 / ns - r->speed) / 8;
    }
    r->ratio += ((double)out / in - r->ratio) / 8;
}

void dedup_compress_rate_skipped(DedupCompressRate *r)
{
    r->skipped++;
}

void dedup_compress_rate_probe(DedupCompressRate *r, bool busy)
{
    r->probes++;
    r->probes_busy += busy;
}

static void choose_level(DedupCompressRate *r, int64_t took, unsigned threads)
{
    double duty = (double)r->busy / took / threads;

    if (r->forced) {
        return;
    }
    if (duty < IDLE) {
        r->level = DEDUP_COMPRESS_LEVEL_HIGH;
    } else if (duty > BUSY || r->skipped) {
        r->level = DEDUP_COMPRESS_LEVEL_LOW;
    }
}

void dedup_compress_rate_window(DedupCompressRate *r, int64_t now,
                                uint64_t sent, unsigned threads)
{
    int64_t took = now - r->begun;

    if (took < WINDOW) {
        return;
    }
    if (r->on) {
        if (r->skipped > r->compressed && r->skipped >= PAGES_MIN) {
            r->on = false;
            r->off_until = now + r->off_for;
            r->off_for = r->off_for < OFF_MAX ? 2 * r->off_for : OFF_MAX;
        } else if (r->compressed >= PAGES_MIN) {
            choose_level(r, took, threads);
        }
    } else if (now >= r->off_until && r->probes >= PROBES_MIN &&
               r->probes_busy * 10 >= r->probes * 9) {
        double link = (sent - r->sent) * 1e9 / took;

        r->on = r->speed * threads > link * MARGIN;
    }
    r->begun = now;
    r->sent = sent;
    r->compressed = r->skipped = 0;
    r->busy = 0;
    r->probes = r->probes_busy = 0;
}

unsigned dedup_compress_rate_pages(const DedupCompressRate *r, uint64_t room,
                                   unsigned waiting, unsigned most)
{
    double pages = room / (r->ratio * PAGE) - waiting;

    return pages < 1 ? 1 : pages < most ? (unsigned)pages : most;
}
