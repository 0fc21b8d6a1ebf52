/*
 * Pace: a storage and a link of given speeds, simulated
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "pace.h"

#define TEST_GROUP "pace"
#define MS 1000

static DedupPace p;

/* Pages a second; the link's rate as dedup_pace_link() would measure it */
static int64_t begin(double link)
{
    int64_t now = 5000 * MS;

    dedup_pace_init(&p, now, 0);
    dedup_pace_link(&p, now + 1000 * MS, link * 4096, 0);
    return now + 1000 * MS;
}

typedef struct Outcome {
    double seconds;
    uint64_t resent, fetched;
} Outcome;

/*
 * @n records are outstanding, nothing else is to be done.  Storage answers
 * from one end at @fetch pages a second, the link sends what is resent from
 * the other; steps of a millisecond.
 */
static Outcome drain(double link, double fetch, uint64_t n)
{
    int64_t now = begin(link), start = now;
    double fetched = 0, link_free = 0;
    Outcome out = { 0 };

    dedup_pace_answers(&p, now, 0, n);
    while (n && now - start < 1000ll * 1000 * MS) {
        uint64_t done;

        now += MS;
        fetched += fetch / 1000;
        done = fetched < n ? fetched : n;
        fetched -= done;
        n -= done;
        out.fetched += done;
        dedup_pace_answers(&p, now, done, n);
        if (now >= link_free) {
            uint64_t resend = dedup_pace_resend(&p, now, n);

            if (resend > n) {
                resend = n;
            }
            n -= resend;
            out.resent += resend;
            link_free = now + resend / link * 1e6;
        }
    }
    out.seconds = (now - start) / 1e6;
    if (link_free > now) {
        out.seconds += (link_free - now) / 1e6;
    }
    return out;
}

/* Sending again what storage brings as fast would cost bytes for nothing */
static void no_resend_from_fast_storage(void)
{
    for (int faster = 2; faster <= 64; faster *= 2) {
        Outcome out = drain(3000, 3000.0 * faster, 50000);

        CHECK(out.resent == 0 && out.fetched == 50000);
    }
    CHECK(drain(3000, 3100, 50000).resent <= 500);
}

/* Slower storage: both ends meet, neither works alone for long */
static void resend_meets_in_the_middle(void)
{
    static const double fetch[] = { 300, 1000, 5000, 15000, 25000 };

    for (int i = 0; i < 5; i++) {
        double link = 30000, n = 200000, best = n / (link + fetch[i]);
        Outcome out = drain(link, fetch[i], n);

        CHECK(out.fetched + out.resent == n);
        CHECK(out.seconds <= best * 1.15 + 0.4);
        CHECK(out.resent <= n * link / (link + fetch[i]) * 1.1 + 2000);
    }
}

/* Storage that never answers: as long as the link alone takes, or so */
static void dead_storage(void)
{
    Outcome out = drain(30000, 0, 100000);

    CHECK(out.fetched == 0 && out.resent == 100000);
    CHECK(out.seconds <= 100000 / 30000.0 * 1.05 + 0.6);
}

#define FAR_MS (64 * 1024)

/*
 * The same over a link with a round trip of @delay: @n records leave in
 * @sending ms, storage reads them when they are there, and each answer takes
 * the way back.
 */
static Outcome drain_far(double link, double fetch, uint64_t n,
                         int64_t delay, unsigned sending)
{
    static uint64_t sent[FAR_MS], read[FAR_MS];
    int64_t start = begin(link), now = start;
    uint64_t answered = 0, link_free = 0;
    unsigned way = delay / MS / 2;
    Outcome out = { 0 };
    double done = 0;

    dedup_pace_round_trip(&p, delay);
    for (unsigned ms = 0; ms < FAR_MS && answered + out.resent < n; ms++) {
        uint64_t was = answered, arrived = ms < way ? 0 : sent[ms - way], due;

        now += MS;
        sent[ms] = ms < sending ? n * (ms + 1) / sending : n;
        done = done + fetch / 1000 < arrived ? done + fetch / 1000 : arrived;
        read[ms] = done;
        answered = ms < way ? 0 : read[ms - way];
        if (answered > n - out.resent) {
            answered = n - out.resent;
        }
        due = dedup_pace_due(&p, now, sent[ms],
                             sent[ms] - out.resent - answered);
        dedup_pace_answers(&p, now, answered - was, due);
        if (sent[ms] == n && now >= link_free) {
            uint64_t resent = dedup_pace_resend(&p, now, due);

            out.resent += resent;
            link_free = now + resent / link * 1e6;
        }
    }
    out.fetched = answered;
    out.seconds = (now - start) / 1e6;
    return out;
}

static const int64_t far_ms[] = { 60, 150, 600, 1000 };

/* An answer that is under way is not late, however far away storage is */
static void no_resend_because_of_delay(void)
{
    for (int i = 0; i < 4; i++) {
        static const unsigned sending[] = { 1, 100, 3000 };

        for (int j = 0; j < 3; j++) {
            Outcome out = drain_far(3000, 1e6, 20000, far_ms[i] * MS,
                                    sending[j]);

            CHECK(out.resent == 0 && out.fetched == 20000);
        }
    }
}

/* Slow storage, far away: the link helps, after the delay */
static void resend_far_away(void)
{
    for (int i = 0; i < 4; i++) {
        double delay = far_ms[i] / 1000.0, n = 200000;
        Outcome slow = drain_far(30000, 5000, n, far_ms[i] * MS, 1000);
        Outcome dead = drain_far(30000, 0, n, far_ms[i] * MS, 1000);

        CHECK(slow.fetched + slow.resent == n);
        CHECK(slow.seconds <= 1 + n / 35000 * 1.15 + 4 * delay + 0.4);
        CHECK(dead.fetched == 0 && dead.resent == n);
        CHECK(dead.seconds <= 1 + n / 30000 * 1.05 + 4 * delay + 0.6);
    }
}

/* Whoever asks seldom is told less, not more */
static void due_is_what_is_old(void)
{
    begin(1000);
    CHECK(dedup_pace_due(&p, 5000 * MS, 70, 7) == 7);
    dedup_pace_round_trip(&p, 100 * MS);
    for (int i = 0; i < 2000; i++) {
        int64_t now = 6000 * MS + i * 7 * MS;
        uint64_t due = dedup_pace_due(&p, now, 70 + i, 7 + i);
        uint64_t most = i * 7 < 200 ? 7 : 7 + i - 200 / 7;

        CHECK(due <= most);
        CHECK(due + 200 / 7 + 4 >= most);
    }
    CHECK(dedup_pace_due(&p, 60000 * MS, 5000, 100) == 0);
    CHECK(dedup_pace_due(&p, 60201 * MS, 5000, 100) == 100);
}

static void stall_doubles(void)
{
    int64_t now = begin(30000);
    uint64_t first, n;

    dedup_pace_answers(&p, now, 0, 1 << 20);
    now += 500 * MS;
    first = dedup_pace_resend(&p, now, 1 << 20);
    CHECK(first >= 16);
    for (int i = 1; i <= 5; i++) {
        n = dedup_pace_resend(&p, now, 1 << 20);
        CHECK(n == first << (i < 3 ? i : 3));
        CHECK(dedup_pace_wait(&p, now) == 0);
    }
    /* An answer ends the stall */
    dedup_pace_answers(&p, now, 1, 1 << 20);
    CHECK(p.stalls == 0);
    CHECK(dedup_pace_wait(&p, now) > 0);
}

static void never_more_than_there_is(void)
{
    for (int i = 0; i < 2000; i++) {
        int64_t now = begin(below(100000) + 300);
        uint64_t left = below(100);

        dedup_pace_answers(&p, now, below(50), left);
        now += below(1000 * MS);
        CHECK(dedup_pace_resend(&p, now, left) <= left);
        CHECK(dedup_pace_wait(&p, now) >= 0);
        CHECK(dedup_pace_wait(&p, now) <= DEDUP_PACE_WAIT_US);
    }
}

static void link_rate(void)
{
    int64_t now = begin(10000);

    CHECK(p.link_rate > 9990 && p.link_rate < 10010);
    /* A limit lower than what was measured counts at once, none does not */
    dedup_pace_link(&p, now, 10000 * 4096.0, 4096 * 2000);
    CHECK(p.link_rate == 2000);
    dedup_pace_link(&p, now, 10000 * 4096.0, 0);
    CHECK(p.link_rate == 2000);
    /* Waiting for answers is not the link's fault */
    dedup_pace_idled(&p, 900 * MS);
    dedup_pace_link(&p, now + 1000 * MS, 11000 * 4096.0, 0);
    CHECK(p.link_rate > 9990 && p.link_rate < 10010);
    /* Too little to tell */
    now += 1000 * MS;
    dedup_pace_link(&p, now + 1000 * MS, 11001 * 4096.0, 0);
    CHECK(p.link_rate > 9990);
    dedup_pace_forget_link(&p, now + 1000 * MS, 99999 * 4096.0);
    dedup_pace_link(&p, now + 2000 * MS, (99999 + 500) * 4096.0, 0);
    CHECK(p.link_rate > 499 && p.link_rate < 501);
}

/* A link may be done with all there is before LINK_SAMPLE_US are over */
static void fast_link_rate(void)
{
    int64_t now = begin(10000);

    dedup_pace_link(&p, now + 10 * MS, 10000 * 4096.0 + (31 << 20), 0);
    CHECK(p.link_rate > 9990 && p.link_rate < 10010);
    dedup_pace_link(&p, now + 10 * MS, 10000 * 4096.0 + (32 << 20), 0);
    CHECK(p.link_rate == (32 << 20) / 4096 * 100.0);
    dedup_pace_link(&p, now + 10 * MS, 10000 * 4096.0 + (99 << 20), 0);
    CHECK(p.link_rate == (32 << 20) / 4096 * 100.0);
}

/* Idle storage has no rate; being idle is no stall */
static void idle_storage(void)
{
    int64_t now = begin(1000);

    for (int i = 0; i < 100; i++) {
        now += 10 * MS;
        dedup_pace_answers(&p, now, 100, 100);
    }
    CHECK(p.fetch_rate > 9000 && p.fetch_rate < 11000);
    dedup_pace_answers(&p, now, 0, 0);
    now += 60000ll * MS;
    dedup_pace_answers(&p, now, 0, 0);
    CHECK(p.fetch_rate > 9000);
    dedup_pace_answers(&p, now, 0, 5000);
    CHECK(dedup_pace_resend(&p, now + MS, 5000) == 0);
}

static void spare(void)
{
    begin(10000);
    CHECK(dedup_pace_spare(&p, 0) == 101);
    CHECK(dedup_pace_spare(&p, 9000) == 101);
    CHECK(dedup_pace_spare(&p, 10001) == 0);
    begin(500);
    CHECK(dedup_pace_spare(&p, 0) == 6);
}

/* No longer than the link would need, nor without end, nor in a spin */
static void round_length(void)
{
    begin(10000);
    CHECK(dedup_pace_round(&p, 1000) == 100 * MS);
    CHECK(dedup_pace_round(&p, 5000) == 500 * MS);
    CHECK(dedup_pace_round(&p, 1) == DEDUP_PACE_ROUND_MIN_US);
    CHECK(dedup_pace_round(&p, UINT64_MAX) == DEDUP_PACE_ROUND_MAX_US);
}

static void hold(void)
{
    begin(100000);
    CHECK(!dedup_pace_hold(&p, 0) && !dedup_pace_hold(&p, 16));
    CHECK(!dedup_pace_hold(&p, 200) && dedup_pace_hold(&p, 201));
    begin(500);
    CHECK(!dedup_pace_hold(&p, 16) && dedup_pace_hold(&p, 17));
}

int main(void)
{
    RUN(no_resend_from_fast_storage);
    RUN(resend_meets_in_the_middle);
    RUN(dead_storage);
    RUN(no_resend_because_of_delay);
    RUN(resend_far_away);
    RUN(due_is_what_is_old);
    RUN(stall_doubles);
    RUN(never_more_than_there_is);
    RUN(link_rate);
    RUN(fast_link_rate);
    RUN(idle_storage);
    RUN(spare);
    RUN(round_length);
    RUN(hold);
    return test_status;
}
