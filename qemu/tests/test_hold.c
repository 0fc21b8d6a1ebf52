/*
 * Holds: what is in them adds up, the longest of each name stays
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <sys/wait.h>
#include "test.h"
#include "qemu/osdep.h"
#include "hold.h"

#define TEST_GROUP "hold"

DedupInject dedup_inject;

static void inner(unsigned steps)
{
    DEDUP_HOLD("bitmap", "inner");
    dedup_hold_steps(steps);
}

static void outer(unsigned steps)
{
    DEDUP_HOLD("bql", "outer");
    dedup_hold_steps(1);
    inner(steps);
    inner(2);
}

static bool reported(const char *line)
{
    g_autofree char *text = dedup_hold_report();

    return strstr(text, line) != NULL;
}

static void adds_up(void)
{
    dedup_hold_steps(7);                        /* in none */
    outer(30);
    outer(10);
    CHECK(reported("hold: bql outer: 2 times, 33 steps, "));
    CHECK(reported("hold: bitmap inner: 4 times, 30 steps, "));
}

static void noted(void)
{
    DEDUP_HOLD_SITE(site, "image", "noted");

    CHECK(!reported("noted"));
    dedup_hold_note(&site, 5, 1000, 3000000);
    dedup_hold_note(&site, 2, 9000, 2000000);
    CHECK(reported("hold: image noted: 2 times, 5 steps, 9 us, "
                   "3000 us on the clock\n"));
}

static void *other_thread(void *opaque)
{
    inner(40);
    return NULL;
}

/* The steps of a thread are its own */
static void threads(void)
{
    DEDUP_HOLD_SITE(site, "bql", "mine");
    DedupHold h, *held = dedup_hold_begin(&h, &site);
    QemuThread thread;

    qemu_thread_create(&thread, "other", other_thread, NULL,
                       QEMU_THREAD_JOINABLE);
    qemu_thread_join(&thread);
    dedup_hold_steps(3);
    dedup_hold_end(&held);
    CHECK(reported("hold: bql mine: 1 times, 3 steps, "));
}

static void limit(void)
{
    DEDUP_HOLD_SITE(site, "bql", "long");
    int status;
    pid_t child = fork();

    if (!child) {
        dedup_inject.hold_limit_us = 5000;
        dedup_hold_note(&site, 1, 5000000, 9000000);
        close(2);
        dedup_hold_note(&site, 1, 5000001, 9000000);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void bounds(void)
{
    CHECK(dedup_at_once(9) == 9);
    dedup_inject.no_bounds = true;
    CHECK(dedup_at_once(9) == UINT64_MAX);
    dedup_inject.no_bounds = false;
}

int main(void)
{
    RUN(adds_up);
    RUN(noted);
    RUN(threads);
    RUN(limit);
    RUN(bounds);
    return test_status;
}
