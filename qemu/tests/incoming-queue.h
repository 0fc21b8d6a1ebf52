/*
 * For tests of the destination: what is to be fetched is kept, and answers
 *
 * A test takes records out of the queue and places them when it likes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef INCOMING_QUEUE_H
#define INCOMING_QUEUE_H

#include "incoming.h"

static DedupFetchRecord queue[4096];
static DedupFetch *queue_fetch;
static unsigned nqueue;
static DedupResult answers[4096];
static unsigned nanswers;

void incoming_queue(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
    queue_fetch = f;
    g_assert(n <= G_N_ELEMENTS(queue) - nqueue);
    memcpy(&queue[nqueue], recs, n * sizeof(*recs));
    nqueue += n;
}

void incoming_answered(uint32_t id, DedupAnswer answer)
{
    g_assert(nanswers < G_N_ELEMENTS(answers));
    answers[nanswers++] = (DedupResult) { id, answer };
}

void dedup_fetch_stop(DedupFetch *f)
{
    g_free(f);
}

#endif
