/*
 * Pages that the guest has written to again, see redirtied.h
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "redirtied.h"

#define ROUND_MIN_US    50000
#define ROUND_MAX_US    500000          /* a cancelled migration waits for it */
#define ROUND_SYNCS     10              /* a tenth of the time for syncs */
#define CHEAP_NS        1e6             /* in a round, whatever it saves */
#define READ_MIN_US     50000           /* QEMU sends in windows of 100 ms */
#define READ_SHARE      20              /* likewise a twentieth */

static int64_t clamp(int64_t us, int64_t least, int64_t most)
{
    return us < least ? least : us > most ? most : us;
}

void dedup_redirtied_init(DedupRedirtied *r, int64_t now)
{
    memset(r, 0, sizeof(*r));
    r->began = r->read_at = now;
}

void dedup_redirtied_round(DedupRedirtied *r, uint32_t round, int64_t now,
                           double page_ns)
{
    double cost = r->looked * (double)DEDUP_LOOK_NS + r->read_us * 1000.0;

    if (r->round == round) {
        return;
    }
    r->on = !r->on || cost < CHEAP_NS || r->found * page_ns >= cost;
    r->round = round;
    r->began = now;
    r->looked = r->found = 0;
    r->read_us = 0;
}

void dedup_redirtied_looked(DedupRedirtied *r, bool found)
{
    r->looked++;
    r->found += found;
}

bool dedup_redirtied_read_due(const DedupRedirtied *r, int64_t now)
{
    int64_t since = r->read_at > r->began ? r->read_at : r->began;

    return r->on && now - since >=
           clamp(r->last_read_us * READ_SHARE, READ_MIN_US, INT64_MAX);
}

void dedup_redirtied_read(DedupRedirtied *r, int64_t start, int64_t now)
{
    r->last_read_us = now - start;
    r->read_us += now - start;
    r->read_at = now;
}

int64_t dedup_redirtied_pause(const DedupRedirtied *r, int64_t now,
                              double page_ns)
{
    int64_t least = clamp(r->sync_us * ROUND_SYNCS, ROUND_MIN_US,
                          ROUND_MAX_US);

    return clamp(r->began + least - now, 0, r->found * page_ns / 1000);
}
