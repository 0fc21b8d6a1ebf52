/*
 * Pace: is storage or the link the slower of the two?
 *
 * When the scan has found nothing dirty but records are outstanding, the
 * link idles.  If storage is at least as fast as the link, waiting is best:
 * sending pages again would cost bytes and gain little time.  If it is
 * slower, the link takes over from the far end of the queue, so many pages
 * that both are done at the same time.
 *
 * An answer is on its way for as long as the link is long: only records that
 * could have been answered by now say anything about storage.
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
#define DEDUP_PACE_MARKS        16

typedef struct DedupPaceMark {
    int64_t us;
    uint64_t sent;              /* records by then, in all */
} DedupPaceMark;

typedef struct DedupPace {
    /* on the way */
    int64_t delay_us;           /* until an answer can be there */
    DedupPaceMark marks[DEDUP_PACE_MARKS];
    unsigned mark;              /* the newest */
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
/* How long the destination's first message took, both ways */
void dedup_pace_round_trip(DedupPace *p, int64_t us);
/*
 * Of @outstanding, those that storage could have answered by now if it were
 * fast; @sent is the number of all records that were ever sent
 */
uint64_t dedup_pace_due(DedupPace *p, int64_t now, uint64_t sent,
                        uint64_t outstanding);
/*
 * @n records were answered, @outstanding are left and due; call also with 0
 */
void dedup_pace_answers(DedupPace *p, int64_t now, uint64_t n,
                        uint64_t outstanding);
/* The link was busy until now, @bytes in all, at most @limit a second (0) */
void dedup_pace_link(DedupPace *p, int64_t now, uint64_t bytes,
                     uint64_t limit);
/* What was sent since the mark says nothing about the link */
void dedup_pace_forget_link(DedupPace *p, int64_t now, uint64_t bytes);
/* Waited so long for answers, not for the link */
void dedup_pace_idled(DedupPace *p, int64_t us);
/* The link idles with @outstanding records due: pages to send in full now */
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
