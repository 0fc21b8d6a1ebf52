/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lister.h"
#include "serve.h"

static const char usage[] =
"usage: page-cache-lister [option...] >listing\n"
"       page-cache-lister --port NAME\n"
"Lists which pages of this guest's memory hold which bytes of its disks, in\n"
"the format of listing-format.h.  Reads only; needs to be root.\n"
"  --port NAME      answer the requests that come by this virtio-serial port\n"
"  --time MS        end the listing after MS milliseconds (10000)\n"
"  --memory KIB     use at most KIB of memory for tables (65536)\n"
"  --extents N      list at most N extents (4194304)\n"
"  --reads KIB      end the listing when it had the disks read KIB (1024)\n"
"  --from ADDRESS   begin at this address of memory, to go on where a listing\n"
"                   of so many extents ended (0)\n"
"  --compact        write COMPACT frames, which earlier hosts do not read\n"
"  --nonce N        number to be repeated in the listing (0)\n"
"  --version, --help\n";

static bool number(const char *text, uint64_t low, uint64_t high,
                   uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !errno && !*end &&
           *value >= low && *value <= high;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        { "time", required_argument, NULL, 't' },
        { "memory", required_argument, NULL, 'm' },
        { "extents", required_argument, NULL, 'e' },
        { "reads", required_argument, NULL, 'r' },
        { "from", required_argument, NULL, 'f' },
        { "nonce", required_argument, NULL, 'n' },
        { "compact", no_argument, NULL, 'c' },
        /* For tests */
        { "keep-privileges", no_argument, NULL, 'k' },
        { "runs", required_argument, NULL, 'R' },
        { "port", required_argument, NULL, 'p' },
        { "version", no_argument, NULL, 'v' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    struct lister_options o = {
        .limit_ms = 10000, .memory_kib = 65536, .extents = 1 << 22,
        .read_kib = 1024,
    };
    const char *port = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        uint64_t value = 0;
        bool good = true;

        switch (option) {
        case 't':
            good = number(optarg, 1, LISTING_MAX_TIME_MS, &value);
            o.limit_ms = value;
            break;
        case 'm':
            good = number(optarg, LISTING_MIN_MEMORY_KIB, UINT32_MAX, &value);
            o.memory_kib = value;
            break;
        case 'e':
            good = number(optarg, 1, LISTING_MAX_EXTENTS, &value);
            o.extents = value;
            break;
        case 'r':
            good = number(optarg, 0, UINT32_MAX, &value);
            o.read_kib = value;
            break;
        case 'f':
            good = number(optarg, 0, INT64_MAX, &o.from);
            break;
        case 'n':
            good = number(optarg, 0, UINT64_MAX, &o.nonce);
            break;
        case 'R':
            good = number(optarg, 1, UINT32_MAX, &value);
            o.runs = value;
            break;
        case 'c':
            o.compact = true;
            break;
        case 'k':
            o.keep_privileges = true;
            break;
        case 'p':
            port = optarg;
            break;
        case 'v':
            printf("page-cache-lister, format %d\n", LISTING_VERSION);
            return 0;
        case 'h':
            fputs(usage, stdout);
            return 0;
        default:
            good = false;
        }
        if (!good) {
            fputs(usage, stderr);
            return 2;
        }
    }
    if (optind != argc || (!port && isatty(STDOUT_FILENO))) {
        fputs(usage, stderr);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    if (port) {
        return serve(port, &o);
    }
    /* Should anything hang, a reader that does not read included */
    alarm(o.limit_ms / 1000 + 2);
    return lister_run(STDOUT_FILENO, &o);
}
