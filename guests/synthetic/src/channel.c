/* SPDX-License-Identifier: Apache-2.0 */
/* The line channel to the host, and the report every second. */
#define _GNU_SOURCE
#include "guest.h"
#include "ports.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPORT_US 1000000

_Atomic unsigned beat_ms;

static int channel = 1;

void channel_open(void)
{
    int fd = -1;

    if (config.channel[0]) {
        fd = ports_open_serial(config.channel);
    }
    if (fd < 0) {
        fd = ports_open_virtio("workload");
    }
    if (fd < 0) {
        fd = ports_open_serial("ttyS1");
    }
    if (fd < 0) {
        fd = ports_open_serial("ttyS0");
    }
    if (fd >= 0) {
        channel = fd;
    }
}

void channel_line(const char *format, ...)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char line[1024];
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    if (length < 0 || length > (int)sizeof(line) - 2) {
        return;
    }
    line[length++] = '\n';
    pthread_mutex_lock(&lock);
    ports_write(channel, line, length);
    pthread_mutex_unlock(&lock);
}

static void report(void)
{
    static unsigned long long seq;
    char error[300] = "";

    if (counters.errors) {
        snprintf(error, sizeof(error), ",\"error\":\"%s\"", counters.error);
    }
    channel_line("{\"type\":\"report\",\"seq\":%llu,\"mode\":\"%s\","
                 "\"passes\":%llu,\"verified\":%llu,\"errors\":%llu,"
                 "\"written\":%llu,\"mono_ms\":%llu,\"gap_ms\":%.1f,"
                 "\"max_gap_ms\":%.1f%s}",
                 seq++, mode_name(config.mode),
                 (unsigned long long)counters.passes,
                 (unsigned long long)counters.verified,
                 (unsigned long long)counters.errors,
                 (unsigned long long)counters.written,
                 (unsigned long long)now_us() / 1000,
                 atomic_exchange(&counters.gap_us, 0) / 1000.0,
                 counters.max_gap_us / 1000.0, error);
}

static void stat(void)
{
    static const char *const wanted[] = {
        "MemTotal", "MemFree", "Cached", "Dirty", "Writeback", "AnonPages",
        "Slab", "Mapped", "Buffers",
    };
    FILE *info = fopen("/proc/meminfo", "r");
    char text[512] = "", name[64];
    unsigned long long value;
    size_t at = 0;

    while (info && fscanf(info, "%63[^:]: %llu%*[^\n]\n", name, &value) == 2) {
        for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
            if (!strcmp(name, wanted[i]) && at < sizeof(text) - 64) {
                at += sprintf(text + at, ",\"%s\":%llu", name, value);
            }
        }
    }
    if (info) {
        fclose(info);
    }
    channel_line("{\"type\":\"reply\",\"command\":\"stat\",\"ok\":true%s}",
                 text);
}

static void refuse(const char *command, const char *why)
{
    channel_line("{\"type\":\"reply\",\"command\":\"%s\",\"ok\":false,"
                 "\"message\":\"%s\"}", command, why);
}

static void command(char *line)
{
    size_t length = strcspn(line, " ");
    char name[16] = "";
    unsigned ms;

    if (length < sizeof(name)) {
        memcpy(name, line, length);
    }
    if (!strcmp(line, "ping")) {
        channel_line("{\"type\":\"reply\",\"command\":\"ping\",\"ok\":true}");
    } else if (!strcmp(line, "stat")) {
        stat();
    } else if (sscanf(line, "beat %u", &ms) == 1) {
        beat_ms = ms;
        channel_line("{\"type\":\"reply\",\"command\":\"beat\",\"ok\":true}");
    } else if (!strcmp(name, "start") || !strcmp(name, "stop") ||
               !strcmp(name, "verify") || !strcmp(name, "drop") ||
               !strcmp(name, "io")) {
        if (!worker_order(line)) {
            refuse(name, "busy");
        }
    } else if (!strcmp(name, "lister")) {
        const char *wrong = lister_command(line[length] ? line + length + 1
                                                        : "");

        if (wrong) {
            refuse(name, wrong);
        } else {
            channel_line("{\"type\":\"reply\",\"command\":\"lister\","
                         "\"ok\":true}");
        }
    } else if (!strcmp(line, "poweroff")) {
        channel_line("{\"type\":\"reply\",\"command\":\"poweroff\","
                     "\"ok\":true}");
        usleep(100000);
        power_off();
    } else if (length) {
        refuse("unknown", "no such command");
    }
}

void channel_serve(void)
{
    uint64_t next = now_us() + REPORT_US;
    static char line[512];
    size_t used = 0;

    for (;;) {
        struct pollfd wait = { .fd = channel, .events = POLLIN };
        uint64_t now = now_us();
        ssize_t got;

        if (now >= next) {
            report();
            next += REPORT_US;
            next = next > now ? next : now + REPORT_US;
            continue;
        }
        if (poll(&wait, 1, (next - now) / 1000 + 1) <= 0) {
            continue;
        }
        got = read(channel, line + used, sizeof(line) - 1 - used);
        if (got <= 0) {
            usleep(20000);      /* the host has hung up for now */
            continue;
        }
        used += got;
        line[used] = 0;
        for (char *end; (end = strpbrk(line, "\r\n"));) {
            *end++ = 0;
            command(line);
            used -= end - line;
            memmove(line, end, used + 1);
        }
        if (used == sizeof(line) - 1) {
            used = 0;           /* no command is that long */
        }
    }
}
