/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks the web server for its files, at random, by connections that stay.
 *
 * With a rate, a request is due at a fixed time, and its latency counts
 * from then: who waits because the server is late is not forgotten.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "pattern.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define MAX_CLIENTS 16
/* Late is not wrong: it is the latency that tells of it. */
#define TIMEOUT_S 100
#define PAUSE_US 100000         /* after an error */

struct response {
    unsigned file;
    uint64_t length;            /* of the body, as announced */
    uint64_t got;
    unsigned char first[PAGE_BYTES];
};

static struct {
    pthread_t threads[MAX_CLIENTS];
    unsigned clients;           /* 0: it does not run */
    uint64_t milli, begin_us;
    _Atomic uint64_t tickets;
    _Atomic bool ends;
} state;

static int connect_to_server(void)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(config.port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    struct timeval limit = { .tv_sec = TIMEOUT_S };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address))) {
        close(fd);
        return -1;
    }
    return fd;
}

bool web_answers(void)
{
    int fd = connect_to_server();

    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void take_body(struct response *response, const char *data,
                      size_t length)
{
    if (response->got < PAGE_BYTES) {
        size_t room = PAGE_BYTES - response->got;

        memcpy(response->first + response->got, data,
               length < room ? length : room);
    }
    response->got += length;
}

/* The head of an answer, and what of its body came with it. */
static bool read_head(int fd, struct response *response)
{
    char head[4097], *end = NULL, *field;
    size_t used = 0;

    while (!end) {
        ssize_t got = recv(fd, head + used, sizeof(head) - 1 - used, 0);

        if (got <= 0) {
            return false;
        }
        used += got;
        head[used] = '\0';
        end = memmem(head, used, "\r\n\r\n", 4);
        if (!end && used == sizeof(head) - 1) {
            return false;
        }
    }
    *end = '\0';
    field = strcasestr(head, "\r\nContent-Length:");
    if (strncmp(head, "HTTP/1.1 200", 12) || !field) {
        return false;
    }
    response->length = strtoull(field + 17, NULL, 10);
    take_body(response, end + 4, head + used - (end + 4));
    return true;
}

static bool right(const struct response *response)
{
    uint64_t expected;

    return response->got == response->length &&
        response->length == (uint64_t)config.pages * PAGE_BYTES &&
        pattern_check(response->first,
                      pattern_start(config.seed, response->file, 0, 0),
                      &expected) < 0;
}

static bool request(int fd, struct response *response, char *buffer,
                    size_t size)
{
    char text[96];
    int length = snprintf(text, sizeof(text),
                          "GET /f%05u HTTP/1.1\r\nHost: guest\r\n\r\n",
                          response->file);

    if (send(fd, text, length, MSG_NOSIGNAL) != length ||
        !read_head(fd, response)) {
        return false;
    }
    while (response->got < response->length) {
        uint64_t left = response->length - response->got;
        ssize_t got = recv(fd, buffer, left < size ? left : size, 0);

        if (got <= 0) {
            return false;
        }
        take_body(response, buffer, got);
    }
    return right(response);
}

/* When the next request is due; waits until then. */
static uint64_t next_due(uint64_t *ticket)
{
    uint64_t due;

    *ticket = atomic_fetch_add(&state.tickets, 1);
    if (!state.milli) {
        return now_us();
    }
    due = state.begin_us + *ticket * 1000000000 / state.milli;
    while (now_us() < due && !state.ends) {
        uint64_t step = now_us() + 200000;

        sleep_until(due < step ? due : step);
    }
    return due;
}

static void *client(void *opaque)
{
    enum { SIZE = 1 << 18 };
    char *buffer = malloc(SIZE);
    struct response response;
    int fd = -1;

    (void)opaque;
    while (buffer && !state.ends) {
        uint64_t ticket, due = next_due(&ticket), now;
        bool good;

        if (state.ends) {
            break;
        }
        response = (struct response) {
            .file = pattern_mix(ticket) % config.count,
        };
        if (fd < 0) {
            fd = connect_to_server();
        }
        good = fd >= 0 && request(fd, &response, buffer, SIZE);
        now = now_us();
        samples_add(WEB, good ? REQUEST : ERROR, now, now - due,
                    response.got);
        if (!good) {
            if (fd >= 0) {
                close(fd);
                fd = -1;
            }
            sleep_until(now + PAUSE_US);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    free(buffer);
    return NULL;
}

const char *web_start(uint64_t milli, unsigned clients)
{
    state.milli = milli;
    state.tickets = 0;
    state.ends = false;
    state.begin_us = now_us();
    samples_run(WEB, true);
    for (state.clients = 0; state.clients < clients; state.clients++) {
        if (pthread_create(&state.threads[state.clients], NULL, client,
                           NULL)) {
            web_stop();
            return "no more threads can be made";
        }
    }
    return NULL;
}

void web_stop(void)
{
    state.ends = true;
    while (state.clients) {
        pthread_join(state.threads[--state.clients], NULL);
    }
    samples_run(WEB, false);
}
