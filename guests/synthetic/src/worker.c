/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread that reads, writes and verifies.  It alone touches files and
 * anonymous memory, so content and versions never disagree; orders reach
 * it between two small steps.  Writing back waits in a thread of its own.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP_BYTES (64 << 10)
#define FLUSH_US 1000000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static char order[512];
static uint64_t started_us, written_before, verified_before;

bool worker_order(const char *line)
{
    bool taken;

    pthread_mutex_lock(&lock);
    taken = !order[0];
    if (taken) {
        snprintf(order, sizeof(order), "%s", line);
        pthread_cond_signal(&wake);
    }
    pthread_mutex_unlock(&lock);
    return taken;
}

static void reply(const char *command, const char *problem)
{
    if (problem) {
        channel_line("{\"type\":\"reply\",\"command\":\"%s\",\"ok\":false,"
                     "\"message\":\"%s\"}", command, problem);
    } else {
        channel_line("{\"type\":\"reply\",\"command\":\"%s\",\"ok\":true}",
                     command);
    }
}

static void begin(void)
{
    started_us = now_us();
    written_before = counters.written;
    verified_before = counters.verified;
}

static void start(char *words)
{
    struct config next = config;
    char *word = strsep(&words, " ");
    enum mode mode = word ? mode_by_name(word) : MODES;

    if (mode == MODES) {
        reply("start", "no such mode");
        return;
    }
    next.mode = mode;
    while ((word = strsep(&words, " "))) {
        if (*word && !size_option(word, &next)) {
            reply("start", "bad option");
            return;
        }
    }
    config.rate = next.rate;
    config.readrate = next.readrate;
    config.wss = next.wss;
    config.mode = mode;
    begin();
    reply("start", NULL);
}

static void drop(void)
{
    int fd;

    files_flush_all();
    small_flush();
    fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "3", 1) != 1) {
        note_error("cannot drop caches");
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void verify(const char *words)
{
    bool all = !*words;
    uint64_t resident = 0, cache = 0, disk = 0, anon = 0;

    if (all || strstr(words, "anon")) {
        anon = anon_verify_all() + recycle_verify_all();
    }
    if (all || strstr(words, "cache")) {
        resident = files_resident();
        cache = files_verify_all(true) + small_verify_all();
    }
    if (all || strstr(words, "disk")) {
        drop();
        disk = files_verify_all(false) + small_verify_all();
    }
    channel_line("{\"type\":\"reply\",\"command\":\"verify\",\"ok\":true,"
                 "\"resident\":%llu,\"cache\":%llu,\"disk\":%llu,"
                 "\"anon\":%llu,\"errors\":%llu,\"error\":\"%s\"}",
                 (unsigned long long)resident, (unsigned long long)cache,
                 (unsigned long long)disk, (unsigned long long)anon,
                 (unsigned long long)counters.errors,
                 counters.errors ? counters.error : "");
}

static void io(char *words)
{
    char *kind = strsep(&words, " ");
    uint64_t ms = words ? strtoull(words, NULL, 10) : 0;
    uint64_t bytes, requests, us;

    if (!kind || (strcmp(kind, "seq") && strcmp(kind, "random")) ||
        !ms || ms > 60000) {
        reply("io", "seq or random, and 1 to 60000 ms");
    } else if (!direct_read(kind[0] == 'r', ms * 1000, &bytes, &requests,
                            &us)) {
        reply("io", "the disk cannot be read");
    } else {
        channel_line("{\"type\":\"reply\",\"command\":\"io\",\"ok\":true,"
                     "\"bytes\":%llu,\"requests\":%llu,\"us\":%llu}",
                     (unsigned long long)bytes, (unsigned long long)requests,
                     (unsigned long long)us);
    }
}

static void obey(char *line)
{
    char *words = line;
    char *command = strsep(&words, " ");

    if (!strcmp(command, "start")) {
        start(words);
    } else if (!strcmp(command, "stop")) {
        config.mode = IDLE;
        reply("stop", NULL);
    } else if (!strcmp(command, "drop")) {
        drop();
        reply("drop", NULL);
    } else if (!strcmp(command, "io")) {
        io(words);
    } else {
        verify(words ? words : "");
    }
}

/* May something of a flow limited to rate (bytes a second) happen now? */
static bool due(uint64_t rate, uint64_t done, uint64_t elapsed_us)
{
    return !rate || done < (double)rate * elapsed_us / 1e6;
}

static void step(void)
{
    enum mode mode = config.mode;
    uint64_t elapsed = now_us() - started_us, did = 0;
    static bool turn;

    if (mode == SMALL_FILES || mode == RECYCLE) {
        uint64_t handled = counters.written - written_before +
                           counters.verified - verified_before;

        if (due(config.rate, handled, elapsed)) {
            uint64_t read, wrote = mode == RECYCLE ? recycle_some(&read)
                                                   : small_some(&read);

            counters.written += wrote;
            counters.verified += read;
            did += wrote + read;
        }
        if (!did) {
            usleep(1000);
        }
        return;
    }
    if (mode != READ &&
        due(config.rate, counters.written - written_before, elapsed)) {
        uint64_t wrote = 0;

        turn = mode == MIXED ? !turn : mode == ANON_WRITER;
        while (turn && wrote < STEP_BYTES) {
            uint64_t more = anon_write_some();

            wrote += more;
            if (!more) {
                break;
            }
        }
        if (!turn) {
            wrote = files_write_some();
        }
        counters.written += wrote;
        did += wrote;
    }
    if (due(config.readrate, counters.verified - verified_before, elapsed)) {
        uint64_t read = 0;

        if (mode != ANON_WRITER) {
            read += files_verify_some(STEP_BYTES);
        }
        if (mode == ANON_WRITER || mode == MIXED) {
            read += anon_verify_some(STEP_BYTES);
        }
        counters.verified += read;
        did += read;
    }
    if (!did) {
        usleep(1000);
    }
}

static void *work(void *unused)
{
    char line[sizeof(order)];

    begin();
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!order[0] && config.mode == IDLE) {
            pthread_cond_wait(&wake, &lock);
        }
        memcpy(line, order, sizeof(line));
        order[0] = 0;
        pthread_mutex_unlock(&lock);
        if (line[0]) {
            obey(line);
        } else {
            step();
        }
    }
    return unused;
}

static void *flush(void *unused)
{
    for (;;) {
        usleep(FLUSH_US);
        files_flush_some();
        small_flush();
    }
    return unused;
}

void worker_start(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, work, NULL);
    pthread_create(&thread, NULL, flush, NULL);
}
