/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "guest.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000)
#define KEPT (1u << 17)
#define RUNS 64
#define SERIES_SECONDS 900

struct sample {
    uint64_t end_us;
    uint32_t us;
    uint32_t bytes;
    enum kind kind;
};

/* Times at which a load was started and ended; end 0: it runs. */
struct run {
    uint64_t begin_us, end_us;
};

static struct {
    struct sample *ring;        /* KEPT, from the first sample on */
    uint64_t added;
    struct run runs[RUNS];
    unsigned nr_runs;           /* ever */
} kept[LOADS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void samples_add(enum load load, enum kind kind, uint64_t end_us,
                 uint64_t us, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    if (!kept[load].ring) {
        kept[load].ring = calloc(KEPT, sizeof(*kept[load].ring));
    }
    if (kept[load].ring) {
        kept[load].ring[kept[load].added++ % KEPT] = (struct sample) {
            .end_us = end_us, .kind = kind,
            .us = us < UINT32_MAX ? us : UINT32_MAX,
            .bytes = bytes < UINT32_MAX ? bytes : UINT32_MAX,
        };
    }
    pthread_mutex_unlock(&lock);
}

void samples_run(enum load load, bool runs)
{
    struct run *run;

    pthread_mutex_lock(&lock);
    if (runs) {
        run = &kept[load].runs[kept[load].nr_runs++ % RUNS];
        *run = (struct run) { .begin_us = now_us() };
    } else if (kept[load].nr_runs) {
        run = &kept[load].runs[(kept[load].nr_runs - 1) % RUNS];
        if (!run->end_us) {
            run->end_us = now_us();
        }
    }
    pthread_mutex_unlock(&lock);
}

static int by_end(const void *a, const void *b)
{
    const struct sample *one = a, *other = b;

    return (one->end_us > other->end_us) - (one->end_us < other->end_us);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t *one = a, *other = b;

    return (*one > *other) - (*one < *other);
}

/* A copy of the samples in [from, to), in order; to be freed. */
static struct sample *copy(enum load load, uint64_t from_us, uint64_t to_us,
                           size_t *count)
{
    struct sample *found;
    uint64_t held;

    *count = 0;
    pthread_mutex_lock(&lock);
    held = kept[load].added < KEPT ? kept[load].added : KEPT;
    found = malloc((held + 1) * sizeof(*found));
    for (uint64_t i = 0; found && i < held; i++) {
        const struct sample *one = &kept[load].ring[i];

        if (one->end_us >= from_us && one->end_us < to_us) {
            found[(*count)++] = *one;
        }
    }
    pthread_mutex_unlock(&lock);
    if (found) {
        qsort(found, *count, sizeof(*found), by_end);
    }
    return found;
}

static void summarize(const struct sample *samples, size_t count,
                      struct summary *summary)
{
    uint32_t *us = malloc((count + 1) * sizeof(*us));
    size_t measured = 0;

    *summary = (struct summary) { 0 };
    for (size_t i = 0; us && i < count; i++) {
        summary->bytes += samples[i].bytes;
        summary->errors += samples[i].kind == ERROR;
        if (samples[i].kind == REQUEST) {
            us[measured++] = samples[i].us;
        }
    }
    summary->requests = measured;
    if (measured) {
        qsort(us, measured, sizeof(*us), by_number);
        /* the smallest that at least so many do not exceed */
        summary->p50_us = us[(measured * 50 + 99) / 100 - 1];
        summary->p99_us = us[(measured * 99 + 99) / 100 - 1];
        summary->max_us = us[measured - 1];
    }
    free(us);
}

/*
 * Adds to counts[n] the requests that were due in the n-th width_us from
 * then, whenever they ended; count is of counts.
 */
static void count_due(enum load load, uint64_t from_us, uint64_t width_us,
                      size_t count, uint64_t *counts)
{
    uint64_t held;

    pthread_mutex_lock(&lock);
    held = kept[load].added < KEPT ? kept[load].added : KEPT;
    for (uint64_t i = 0; kept[load].ring && i < held; i++) {
        const struct sample *one = &kept[load].ring[i];
        uint64_t due_us = one->end_us - one->us;

        if (one->kind != VOLUME && due_us >= from_us &&
            (due_us - from_us) / width_us < count) {
            counts[(due_us - from_us) / width_us]++;
        }
    }
    pthread_mutex_unlock(&lock);
}

void samples_window(enum load load, uint64_t from_us, uint64_t to_us,
                    struct summary *summary)
{
    size_t count;
    struct sample *samples = copy(load, from_us, to_us, &count);

    summarize(samples, samples ? count : 0, summary);
    if (to_us > from_us) {
        count_due(load, from_us, to_us - from_us, 1, &summary->due);
    }
    free(samples);
}

/* Whether some run covers this second wholly. */
static bool ran(enum load load, uint64_t from_us, uint64_t now)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < kept[load].nr_runs && i < RUNS; i++) {
        const struct run *run = &kept[load].runs[i];

        found |= run->begin_us <= from_us &&
            from_us + SECOND <= (run->end_us ? run->end_us : now);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

unsigned samples_series(enum load load, uint64_t since_us,
                        void (*each)(void *opaque, uint64_t from_us,
                                     const struct summary *summary),
                        void *opaque)
{
    uint64_t now = now_us(), oldest = 0, due[SERIES_SECONDS] = { 0 };
    unsigned seconds = 0;
    size_t count, at = 0;
    struct sample *samples;

    if (now > SERIES_SECONDS * SECOND) {
        oldest = now - SERIES_SECONDS * SECOND;
    }
    if (since_us < oldest) {
        since_us = oldest;
    }
    since_us += (SECOND - since_us % SECOND) % SECOND;
    samples = copy(load, since_us, now, &count);
    count_due(load, since_us, SECOND, SERIES_SECONDS, due);
    for (uint64_t from = since_us; samples && from + SECOND <= now;
         from += SECOND) {
        struct summary summary;
        size_t begin = at;

        while (at < count && samples[at].end_us < from + SECOND) {
            at++;
        }
        if (ran(load, from, now)) {
            summarize(samples + begin, at - begin, &summary);
            summary.due = due[(from - since_us) / SECOND];
            each(opaque, from, &summary);
            seconds++;
        }
    }
    free(samples);
    return seconds;
}
