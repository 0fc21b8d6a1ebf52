/* SPDX-License-Identifier: Apache-2.0 */
/* Order of start-up, the timer that measures gaps, and the end. */
#include "guest.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>

#define TIMER_US 5000

struct config config;
struct counters counters;

uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void power_off(void)
{
    files_unmount();
    sync();
    reboot(RB_POWER_OFF);
    for (;;) {
        pause();
    }
}

void fatal(const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    channel_line("{\"type\":\"fatal\",\"message\":\"%s\"}", text);
    usleep(200000);
    power_off();
}

void note_error(const char *format, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    va_list args;

    pthread_mutex_lock(&lock);
    if (!counters.errors) {
        va_start(args, format);
        vsnprintf(counters.error, sizeof(counters.error), format, args);
        va_end(args);
    }
    counters.errors++;
    pthread_mutex_unlock(&lock);
}

static void *measure_gaps(void *unused)
{
    struct sched_param priority = { .sched_priority = 50 };
    uint64_t beat_at = 0, beats = 0;

    pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority);
    for (;;) {
        uint64_t before = now_us(), late, now;

        usleep(TIMER_US);
        now = now_us();
        late = now - before;
        late = late > TIMER_US ? late - TIMER_US : 0;
        if (late > counters.gap_us) {
            counters.gap_us = late;
        }
        if (late > counters.max_gap_us) {
            counters.max_gap_us = late;
        }
        if (beat_ms && now >= beat_at) {
            channel_line("{\"type\":\"beat\",\"seq\":%llu}",
                         (unsigned long long)beats++);
            beat_at = now + beat_ms * UINT64_C(1000);
        }
    }
    return unused;
}

int main(void)
{
    pthread_t thread;

    boot_prepare();
    boot_modules();
    boot_config();
    channel_open();
    files_find();
    anon_fill();
    files_verify_some(files_active());
    counters.verified = 0;
    channel_line("{\"type\":\"ready\",\"disks\":%u,\"files\":%llu,"
                 "\"file_bytes\":%llu,\"cache_bytes\":%llu,"
                 "\"anon_bytes\":%llu,\"errors\":%llu,\"mono_ms\":%llu}",
                 files_disks(), (unsigned long long)files_count(),
                 (unsigned long long)files_total(),
                 (unsigned long long)files_active(),
                 (unsigned long long)config.anon,
                 (unsigned long long)counters.errors,
                 (unsigned long long)now_us() / 1000);
    lister_start();
    worker_start();
    pthread_create(&thread, NULL, measure_gaps, NULL);
    channel_serve();
}
