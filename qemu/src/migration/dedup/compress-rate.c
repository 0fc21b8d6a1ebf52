/*
 * Compression against the link, see compress-rate.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "compress-rate.h"

#define MS              1000000
#define WINDOW          (25 * MS)
#define HOLD_MIN        (125 * (int64_t)MS)
#define HOLD_MAX        (128 * HOLD_MIN)
#define PAGES_MIN       256         /* fewer tell nothing */
#define PROBES_MIN      8
#define MARGIN          1.25        /* compression over the link */
#define GAIN            1.1         /* what it has to gain in a trial */
#define IDLE            0.2         /* of a thread's time at the low level */
#define BUSY            0.6         /* likewise at the high one */
#define RATIO           0.25        /* until it was measured */
#define PAGE            4096

static bool faster(const DedupCompressRate *r, double link, unsigned threads)
{
    return r->speed * threads > link * MARGIN;
}

void dedup_compress_rate_init(DedupCompressRate *r, int64_t now, int level,
                              uint64_t limit, unsigned threads)
{
    memset(r, 0, sizeof(*r));
    r->forced = level;
    r->level = level ? level : DEDUP_COMPRESS_LEVEL_LOW;
    r->speed = DEDUP_COMPRESS_SPEED;
    r->ratio = RATIO;
    r->until = now;
    r->hold = HOLD_MIN;
    r->on = limit && faster(r, limit, threads);
}

void dedup_compress_rate_batch(DedupCompressRate *r, unsigned pages,
                               uint64_t in, uint64_t out, int64_t ns)
{
    r->busy += ns;
    r->content += in;
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

/* It is on or off for a while */
static void decide(DedupCompressRate *r, int64_t now, bool on)
{
    r->on = on;
    r->trial = false;
    r->plain = 0;
    r->until = now + r->hold;
    r->hold = r->hold < HOLD_MAX ? 2 * r->hold : HOLD_MAX;
}

/* Was this window one of content, not of records and zero pages? */
static bool content(const DedupCompressRate *r, double through)
{
    return r->compressed + r->skipped >= PAGES_MIN && through > r->plain / 2;
}

/* A window with compression */
static void with(DedupCompressRate *r, int64_t now, int64_t took, bool busy)
{
    double through = (r->content + r->skipped * PAGE) * 1e9 / took;

    if (r->skipped > r->compressed && r->skipped >= PAGES_MIN) {
        decide(r, now, false);
    } else if (r->plain && through > r->plain * GAIN) {
        decide(r, now, true);
    } else if (r->plain && (busy || content(r, through))) {
        decide(r, now, false);
    } else if (busy && now >= r->until) {
        r->through = through;
        r->trial = true;
        r->on = false;
    }
}

/* A window without */
static void without(DedupCompressRate *r, int64_t now, double link,
                    unsigned threads, bool busy)
{
    if (r->trial) {
        decide(r, now, busy && r->through > link * GAIN);
    } else if (busy && now >= r->until && faster(r, link, threads)) {
        r->on = true;
        r->windows = 0;
        r->plain = link;
    }
}

void dedup_compress_rate_window(DedupCompressRate *r, int64_t now,
                                uint64_t sent, unsigned threads)
{
    int64_t took = now - r->begun;
    bool known = r->probes >= PROBES_MIN;
    /* A queue that is emptied in large pieces is short now and then */
    bool busy = known && r->probes_busy * 2 >= r->probes;

    if (r->begun && (took < WINDOW || (!r->on && !known))) {
        return;
    }
    if (!r->begun) {
        /* It begins with the first pages, not with the setup */
    } else if (!r->on) {
        without(r, now, (sent - r->sent) * 1e9 / took, threads, busy);
    } else if (r->windows++) {          /* not while threads warm up */
        with(r, now, took, busy);
        if (r->on && r->compressed >= PAGES_MIN) {
            choose_level(r, took, threads);
        }
    }
    r->begun = now;
    r->sent = sent;
    r->compressed = r->skipped = r->content = 0;
    r->busy = 0;
    r->probes = r->probes_busy = 0;
}

unsigned dedup_compress_rate_pages(const DedupCompressRate *r, uint64_t room,
                                   unsigned waiting, unsigned most)
{
    double pages = room / (r->ratio * PAGE) - waiting;

    return pages < 1 ? 1 : pages < most ? (unsigned)pages : most;
}
