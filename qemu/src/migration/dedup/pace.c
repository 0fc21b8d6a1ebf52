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
#define SAMPLE_PAGES    256
#define SAMPLE_MAX_US   200000
#define LINK_SAMPLE_US  50000
#define LINK_SAMPLE     (1 << 20)       /* bytes */
#define LINK_SAMPLE_BIG (32 << 20)      /* much more than buffers take */
#define STALL_US        100000
#define CHUNK_S         0.05            /* of the link's time, a resend */
#define FEW_S           0.01            /* not worth resending */
#define HOLD_S          0.002           /* of the link's time, outstanding */
/*
 * TCP lets its sender's buffer grow to twice what is under way: a record may
 * wait there for a round trip before it goes on one.
 */
#define ROUND_TRIPS     2

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

void dedup_pace_round_trip(DedupPace *p, int64_t us)
{
    p->delay_us = us * ROUND_TRIPS;
}

uint64_t dedup_pace_due(DedupPace *p, int64_t now, uint64_t sent,
                        uint64_t outstanding)
{
    uint64_t old = 0;

    /* So far apart that the oldest mark is always old enough */
    if (now - p->marks[p->mark].us >= p->delay_us / (DEDUP_PACE_MARKS - 2)) {
        p->mark = (p->mark + 1) % DEDUP_PACE_MARKS;
        p->marks[p->mark] = (DedupPaceMark) { now, sent };
    }
    for (unsigned i = 0; i < DEDUP_PACE_MARKS; i++) {
        if (now - p->marks[i].us >= p->delay_us && p->marks[i].sent > old) {
            old = p->marks[i].sent;
        }
    }
    /* None that was sent since can have been answered */
    return sent - old < outstanding ? outstanding - (sent - old) : 0;
}

void dedup_pace_answers(DedupPace *p, int64_t now, uint64_t n,
                        uint64_t outstanding)
{
    /* Time in which storage had something to do */
    if (p->was_outstanding) {
        p->busy_us += now - p->answer_mark;
        p->answered += n;
    } else if (outstanding) {
        p->last_answer = now;
    }
    p->answer_mark = now;
    p->was_outstanding = outstanding > 0;
    if (n) {
        p->last_answer = now;
        p->stalls = 0;
    }
    /* A few answers tell about latency, not about a rate */
    if (p->busy_us >= SAMPLE_MAX_US ||
        (p->busy_us >= SAMPLE_US && p->answered >= SAMPLE_PAGES)) {
        double rate = p->answered * 1e6 / p->busy_us;

        p->fetch_rate = p->fetch_rate ? (p->fetch_rate * 3 + rate) / 4 : rate;
        p->answered = 0;
        p->busy_us = 0;
    }
}

void dedup_pace_link(DedupPace *p, int64_t now, uint64_t bytes,
                     uint64_t limit)
{
    int64_t busy = now - p->link_mark - p->idle_us;
    uint64_t sent = bytes - p->link_bytes;

    if (limit && p->link_rate > limit / PAGE) {
        p->link_rate = limit / PAGE;
    }
    if (busy <= 0 || (sent < LINK_SAMPLE_BIG &&
                      (busy < LINK_SAMPLE_US || sent < LINK_SAMPLE))) {
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

uint64_t dedup_pace_resend(DedupPace *p, int64_t now, uint64_t outstanding)
{
    double n = p->link_rate * CHUNK_S;

    p->resending = outstanding &&
                   (stalled(p, now) ||
                    (p->fetch_rate && p->fetch_rate < p->link_rate &&
                     outstanding > p->link_rate * FEW_S));
    if (!p->resending) {
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
    return p->resending && stalled(p, now) ? 0
           : p->resending ? DEDUP_PACE_WAIT_US / 10 : DEDUP_PACE_WAIT_US;
}

uint64_t dedup_pace_spare(DedupPace *p, uint64_t dirty)
{
    return dirty >= p->link_rate ? 0 : p->link_rate * DEDUP_PACE_WAIT_US / 1e6 + 1;
}

int64_t dedup_pace_round(DedupPace *p, uint64_t unsettled)
{
    double us = unsettled * 1e6 / p->link_rate;

    return us < DEDUP_PACE_ROUND_MIN_US ? DEDUP_PACE_ROUND_MIN_US
           : min(us, DEDUP_PACE_ROUND_MAX_US);
}

bool dedup_pace_hold(DedupPace *p, uint64_t outstanding)
{
    double few = p->link_rate * HOLD_S;

    return outstanding > (few < 16 ? 16 : few);
}
