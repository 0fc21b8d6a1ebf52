/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of text over serial ports.  Whoever was at the other end may have
 * gone in the middle of anything.
 */
#define _GNU_SOURCE
#include "guest.h"
#include "ports.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TICK_MS 1000

struct line {
    int fd;
    bool idle;                  /* nobody at the other end, this second */
    bool skipping;              /* up to the end of a line too long */
    size_t used;
    char text[512];
};

enum { SERIAL, VIRTIO, LINES };
static struct line lines[LINES] = { { .fd = -1 }, { .fd = -1 } };

void line_write(int line, const char *text)
{
    ports_write(line, text, strlen(text));
}

static void take(struct line *line, const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (data[i] == '\n' || data[i] == '\r') {
            line->text[line->used] = '\0';
            if (line->used && !line->skipping) {
                order_line(line->fd ? line->fd : STDOUT_FILENO, line->text);
            }
            line->used = 0;
            line->skipping = false;
        } else if (line->used == sizeof(line->text) - 1) {
            line->skipping = true;
        } else {
            line->text[line->used++] = data[i];
        }
    }
}

static void read_some(struct line *line)
{
    char data[512];
    ssize_t got = read(line->fd, data, sizeof(data));

    if (got > 0) {
        take(line, data, got);
    } else if (got == 0 && config.stdio) {
        exit(0);
    } else {
        line->idle = true;
    }
}

static void open_missing(void)
{
    if (config.stdio) {
        lines[SERIAL].fd = STDIN_FILENO;
        return;
    }
    if (lines[SERIAL].fd < 0) {
        lines[SERIAL].fd = ports_open_serial("ttyS0");
    }
    if (lines[VIRTIO].fd < 0) {
        lines[VIRTIO].fd = ports_open_virtio("workload");
    }
}

void line_serve(void)
{
    uint64_t tick = 0;

    for (;;) {
        struct pollfd wait[LINES];
        uint64_t now = now_us();

        if (now >= tick) {
            tick = now + TICK_MS * 1000;
            open_missing();
            for (int i = 0; i < LINES; i++) {
                lines[i].idle = false;
            }
        }
        for (int i = 0; i < LINES; i++) {
            wait[i].fd = lines[i].idle ? -1 : lines[i].fd;
            wait[i].events = POLLIN;
            wait[i].revents = 0;
        }
        poll(wait, LINES, TICK_MS);
        for (int i = 0; i < LINES; i++) {
            if (wait[i].revents & POLLIN) {
                read_some(&lines[i]);
            } else if (wait[i].revents) {
                /* no event tells when somebody comes */
                lines[i].idle = true;
                if (config.stdio) {
                    exit(0);
                }
            }
        }
    }
}
