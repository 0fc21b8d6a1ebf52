/*
 * Pace: is storage or the link the slower of the two?
 *
 * When the scan has found nothing dirty but records are outstanding, the
 * link idles.  If storage is at least as fast as the link, waiting is best:
 * sending pages again would cost bytes and gain little time.  If it is
 * slower, the link takes over from the far end of the queue, so many pages
 * that both are done at the same time.
 *
 * Pure arithmetic over what the caller reports; times in microseconds, rates
 * in pages a second.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_PACE_H
#define MIGRATION_DEDUP_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define DEDUP_PACE_WAIT_US      10000   /* longest wait at once */
#define DEDUP_PACE_ROUND_MIN_US 50000
#define DEDUP_PACE_ROUND_MAX_US 1000000

typedef struct DedupPace {
    /* answers */
    int64_t answer_mark;
    bool was_outstanding;       /* then */
    int64_t busy_us;            /* of storage, in this sample */
    uint64_t answered;          /* likewise */
    int64_t last_answer;
    double fetch_rate;
    /* link */
    int64_t link_mark;
    uint64_t link_bytes;        /* at the mark */
    int64_t idle_us;            /* since the mark */
    double link_rate;
    /* resending */
    bool resending;
    unsigned stalls;            /* resends without any answer between */
} DedupPace;

void dedup_pace_init(DedupPace *p, int64_t now, uint64_t bytes);
/* @n records were answered, @outstanding are left; call also with 0 */
void dedup_pace_answers(DedupPace *p, int64_t now, uint64_t n,
                        uint64_t outstanding);
/* The link was busy until now, @bytes in all, at most @limit a second (0) */
void dedup_pace_link(DedupPace *p, int64_t now, uint64_t bytes,
                     uint64_t limit);
/* What was sent since the mark says nothing about the link */
void dedup_pace_forget_link(DedupPace *p, int64_t now, uint64_t bytes);
/* Waited so long for answers, not for the link */
void dedup_pace_idled(DedupPace *p, int64_t us);
/* The link idles with @outstanding records: pages to send in full now */
uint64_t dedup_pace_resend(DedupPace *p, int64_t now, uint64_t outstanding);
/* How long to wait for answers before asking dedup_pace_resend() again */
int64_t dedup_pace_wait(DedupPace *p, int64_t now);
/*
 * Pages that the link, which idles, takes in DEDUP_PACE_WAIT_US; none when
 * the guest dirties @dirty pages a second and these are too many for it
 */
uint64_t dedup_pace_spare(DedupPace *p, uint64_t dirty);
/*
 * How long a round may last whose link idles with @unsettled pages put off:
 * what the link would have needed to send them instead.
 */
int64_t dedup_pace_round(DedupPace *p, uint64_t unsettled);
/* Is it worth while to put the switch-over off for so many records? */
bool dedup_pace_hold(DedupPace *p, uint64_t outstanding);

#endif
