/*
 * Pace, see pace.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "pace.h"

#define PAGE            4096.0
#define DEFAULT_LINK    (125e6 / PAGE)  /* until something was sent: 1 Gbit/s */
#define SAMPLE_US       20000
#define LINK_SAMPLE_US  50000
#define LINK_SAMPLE     (1 << 20)       /* bytes */
#define STALL_US        100000
#define CHUNK_S         0.05            /* of the link's time, a steal */
#define HOLD_US         500000
#define HOLD_S          0.002           /* of the link's time, outstanding */

static double min(double a, double b)
{
    return a < b ? a : b;
}

void dedup_pace_init(DedupPace *p, int64_t now, uint64_t bytes)
{
    memset(p, 0, sizeof(*p));
    p->answer_mark = p->last_answer = p->link_mark = now;
    p->link_bytes = bytes;
    p->link_rate = DEFAULT_LINK;
}

void dedup_pace_answers(DedupPace *p, int64_t now, uint64_t n,
                        uint64_t outstanding)
{
    int64_t span = now - p->answer_mark;

    p->answered += n;
    if (n) {
        p->last_answer = now;
        p->stalls = 0;
    }
    if (span < SAMPLE_US) {
        return;
    }
    /* With nothing to do, storage shows no rate */
    if (p->answered || outstanding) {
        double rate = p->answered * 1e6 / span;

        p->fetch_rate = p->fetch_rate ? (p->fetch_rate * 3 + rate) / 4 : rate;
    }
    p->answered = 0;
    p->answer_mark = now;
}

void dedup_pace_link(DedupPace *p, int64_t now, uint64_t bytes,
                     uint64_t limit)
{
    int64_t busy = now - p->link_mark - p->idle_us;
    uint64_t sent = bytes - p->link_bytes;

    if (limit && p->link_rate > limit / PAGE) {
        p->link_rate = limit / PAGE;
    }
    if (busy < LINK_SAMPLE_US || sent < LINK_SAMPLE) {
        return;
    }
    p->link_rate = sent * 1e6 / busy / PAGE;
    dedup_pace_forget_link(p, now, bytes);
}

void dedup_pace_forget_link(DedupPace *p, int64_t now, uint64_t bytes)
{
    p->link_mark = now;
    p->link_bytes = bytes;
    p->idle_us = 0;
}

void dedup_pace_idled(DedupPace *p, int64_t us)
{
    p->idle_us += us;
}

static bool stalled(DedupPace *p, int64_t now)
{
    return now - p->last_answer > STALL_US;
}

uint64_t dedup_pace_steal(DedupPace *p, int64_t now, uint64_t outstanding)
{
    double n = p->link_rate * CHUNK_S;

    p->stealing = stalled(p, now) || p->fetch_rate < p->link_rate;
    if (!p->stealing) {
        return 0;
    }
    if (stalled(p, now)) {
        /* Storage may hang for good: do not let the link wait for it */
        for (unsigned i = 0; i < p->stalls && i < 3; i++) {
            n *= 2;
        }
        p->stalls++;
    } else {
        /* Both ends meet after outstanding / (fetch + link) seconds */
        n = min(n, outstanding * p->link_rate /
                   (p->link_rate + p->fetch_rate));
    }
    if (n < 16) {
        n = 16;
    }
    return n < outstanding ? (uint64_t)n : outstanding;
}

int64_t dedup_pace_wait(DedupPace *p, int64_t now)
{
    return p->stealing && stalled(p, now) ? 0
           : p->stealing ? DEDUP_PACE_WAIT_US / 10 : DEDUP_PACE_WAIT_US;
}

bool dedup_pace_hold(DedupPace *p, int64_t now, uint64_t outstanding)
{
    double few = p->link_rate * HOLD_S;

    if (outstanding <= (few < 16 ? 16 : few)) {
        return false;
    }
    if (!p->hold_since) {
        p->hold_since = now;
    }
    return now - p->hold_since < HOLD_US;
}
