/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "serve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "request.h"
#include "sysfs.h"

static int open_port(const char *wanted)
{
    DIR *all = opendir("/sys/class/virtio-ports");
    char path[PATH_MAX], name[64];
    struct dirent *entry;
    int fd = -1;

    while (all && fd < 0 && (entry = readdir(all))) {
        if (entry->d_name[0] != '.' &&
            sysfs_text(name, sizeof(name), "/sys/class/virtio-ports/%s/name",
                       entry->d_name) && !strcmp(name, wanted)) {
            snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
            fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        }
    }
    if (all) {
        closedir(all);
    }
    return fd;
}

static void end_child(pid_t *child)
{
    if (*child > 0) {
        kill(*child, SIGKILL);
        waitpid(*child, NULL, 0);
        *child = 0;
    }
}

static pid_t answer(int fd, const struct listing_request *request,
                    const struct lister_options *defaults)
{
    struct lister_options options = *defaults;
    pid_t child = fork();

    if (child) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    options.nonce = request->nonce;
    options.limit_ms = request->limit_ms;
    options.memory_kib = request->memory_kib;
    options.extents = request->extents;
    alarm(options.limit_ms / 1000 + 2);
    _exit(lister_run(fd, &options));
}

int serve(const char *port, const struct lister_options *defaults)
{
    struct request_input input = { .used = 0 };
    int fd = open_port(port);
    pid_t child = 0;

    if (fd < 0) {
        fprintf(stderr, "page-cache-lister: port %s: %s\n", port,
                errno ? strerror(errno) : "there is none");
        return 1;
    }
    for (;;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        struct listing_request request;
        uint8_t bytes[256];
        ssize_t got;

        if (child > 0 && waitpid(child, NULL, WNOHANG) == child) {
            child = 0;
        }
        if (poll(&wait, 1, child ? 1000 : -1) < 0 && errno != EINTR) {
            break;
        }
        got = wait.revents & POLLIN ? read(fd, bytes, sizeof(bytes)) : 0;
        if (got > 0) {
            if (request_feed(&input, bytes, got, &request)) {
                end_child(&child);
                child = answer(fd, &request, defaults);
            }
        } else if (got < 0 && errno != EAGAIN && errno != EINTR) {
            break;              /* the port has gone */
        } else if (wait.revents) {
            /* Nobody has the host's end open: no event tells when. */
            sleep(1);
        }
    }
    end_child(&child);
    return 0;
}
