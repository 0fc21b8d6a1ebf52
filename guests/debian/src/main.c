/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "guest.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct config config = {
    .files = "/srv/web",
    .database = "/var/lib/postgresql/main",
    .aged = "/srv/aged",
    .port = 80,
    .seed = 1,
    .count = 1024,
    .pages = 75,
};

uint64_t now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * UINT64_C(1000000) + now.tv_nsec / 1000;
}

void sleep_until(uint64_t us)
{
    struct timespec until = {
        .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000,
    };

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) {
        /* a signal */
    }
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "files", required_argument, NULL, 'f' },
        { "count", required_argument, NULL, 'c' },
        { "port", required_argument, NULL, 'p' },
        { "database", required_argument, NULL, 'd' },
        { "aged", required_argument, NULL, 'a' },
        { "stdio", no_argument, NULL, 's' },
        { 0 },
    };
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'f':
            config.files = optarg;
            break;
        case 'c':
            config.count = strtoul(optarg, NULL, 10);
            break;
        case 'p':
            config.port = strtoul(optarg, NULL, 10);
            break;
        case 'd':
            config.database = optarg;
            break;
        case 'a':
            config.aged = optarg;
            break;
        case 's':
            config.stdio = true;
            break;
        default:
            return 2;
        }
    }
    signal(SIGPIPE, SIG_IGN);
    line_serve();
}
