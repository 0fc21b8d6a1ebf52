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

#include "listing.h"
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

/* A child in a read of a broken disk survives SIGKILL until the read ends.
 * So none is waited for long, and there may not be many. One more only
 * refuses, which cannot hang. */
#define MAX_CHILDREN 4
/* Any other child ends at once: milliseconds to wait for that */
#define END_MS 100
#define END_STEP_MS 5

struct children {
    unsigned count;
    pid_t pid[MAX_CHILDREN + 1];    /* the last one answers, others were
                                     * killed */
};

static void reap(struct children *c)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < c->count; i++) {
        if (waitpid(c->pid[i], NULL, WNOHANG) != c->pid[i]) {
            c->pid[kept++] = c->pid[i];
        }
    }
    c->count = kept;
}

/* A child that is gone writes no more: it may have been within a frame, which
 * is not to end up in the next listing. */
static void end_children(struct children *c)
{
    for (unsigned i = 0; i < c->count; i++) {
        kill(c->pid[i], SIGKILL);
    }
    reap(c);
    for (unsigned ms = 0; c->count && ms < END_MS; ms += END_STEP_MS) {
        poll(NULL, 0, END_STEP_MS);
        reap(c);
    }
}

/* The host would wait for a listing until its time is over. */
static int refuse(int fd, const struct listing_request *request)
{
    static const struct listing_figures none;
    static struct listing listing;

    listing_begin(&listing, fd, request->extents, sysconf(_SC_PAGESIZE),
                  request->nonce, request->compact);
    listing_skip(&listing, LISTING_WHY_METHOD, 0,
                 "%u earlier listings hang, maybe in reads of a disk",
                 MAX_CHILDREN);
    listing_end(&listing, LISTING_FAILED, LISTING_METHOD_NONE, &none, 0, 0,
                0, 0);
    return listing.broken;
}

static void answer(struct children *c, int fd,
                   const struct listing_request *request,
                   const struct lister_options *defaults)
{
    struct lister_options options = *defaults;
    bool hang;
    pid_t child;

    end_children(c);
    if (c->count > MAX_CHILDREN) {
        /* The one that refuses has not ended yet. */
        return;
    }
    hang = c->count == MAX_CHILDREN;
    child = fork();
    if (child < 0) {
        fprintf(stderr, "page-cache-lister: fork: %s\n", strerror(errno));
        return;
    }
    if (child) {
        c->pid[c->count++] = child;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    options.nonce = request->nonce;
    options.compact = request->compact;
    options.limit_ms = request->limit_ms;
    options.memory_kib = request->memory_kib;
    options.extents = request->extents;
    alarm(options.limit_ms / 1000 + 2);
    _exit(hang ? refuse(fd, request) : lister_run(fd, &options));
}

void serve_requests(int fd, const struct lister_options *defaults)
{
    struct request_input input = { .used = 0 };
    struct children children = { .count = 0 };

    for (;;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        struct listing_request request;
        uint8_t bytes[256];
        ssize_t got;

        reap(&children);
        if (poll(&wait, 1, children.count ? 1000 : -1) < 0 &&
            errno != EINTR) {
            break;
        }
        got = wait.revents & POLLIN ? read(fd, bytes, sizeof(bytes)) : 0;
        if (got > 0) {
            if (request_feed(&input, bytes, got, &request)) {
                answer(&children, fd, &request, defaults);
            }
        } else if (got < 0 && errno != EAGAIN && errno != EINTR) {
            break;              /* the port has gone */
        } else if (wait.revents) {
            /* Nobody has the host's end open: no event tells when. */
            sleep(1);
        }
    }
    end_children(&children);
}

int serve(const char *port, const struct lister_options *defaults)
{
    int fd = open_port(port);

    if (fd < 0) {
        fprintf(stderr, "page-cache-lister: port %s: %s\n", port,
                errno ? strerror(errno) : "there is none");
        return 1;
    }
    serve_requests(fd, defaults);
    return 0;
}
