/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of text over serial ports.  Whoever was at the other end may have
 * gone in the middle of anything.
 */
#define _GNU_SOURCE
#include "guest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#define PORT "workload"
#define TICK_MS 1000
#define WRITE_WAIT_MS 2000

struct line {
    int fd;
    bool idle;                  /* nobody at the other end, this second */
    bool skipping;              /* up to the end of a line too long */
    size_t used;
    char text[512];
};

enum { SERIAL, VIRTIO, LINES };
static struct line lines[LINES] = { { .fd = -1 }, { .fd = -1 } };

static int open_serial(void)
{
    int fd = open("/dev/ttyS0", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    struct termios raw;

    if (fd >= 0 && !tcgetattr(fd, &raw)) {
        cfmakeraw(&raw);
        cfsetspeed(&raw, B115200);
        raw.c_cflag |= CLOCAL | CREAD;
        tcsetattr(fd, TCSANOW, &raw);
    }
    return fd;
}

static int open_port(void)
{
    DIR *ports = opendir("/sys/class/virtio-ports");
    struct dirent *entry;
    int fd = -1;

    while (ports && fd < 0 && (entry = readdir(ports))) {
        char path[320], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name",
                 entry->d_name);
        file = fopen(path, "r");
        if (!file) {
            continue;
        }
        if (fscanf(file, "%31s", name) == 1 && !strcmp(name, PORT)) {
            snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
            fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        }
        fclose(file);
    }
    if (ports) {
        closedir(ports);
    }
    return fd;
}

/* What nobody takes is dropped: the guest must not hang on its host. */
void line_write(int line, const char *text)
{
    size_t length = strlen(text), at = 0;

    while (at < length) {
        ssize_t put = write(line, text + at, length - at);

        if (put > 0) {
            at += put;
        } else if (put < 0 && errno == EAGAIN) {
            struct pollfd wait = { .fd = line, .events = POLLOUT };

            if (poll(&wait, 1, WRITE_WAIT_MS) <= 0 ||
                !(wait.revents & POLLOUT)) {
                return;
            }
        } else if (put == 0 || errno != EINTR) {
            return;
        }
    }
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
        lines[SERIAL].fd = open_serial();
    }
    if (lines[VIRTIO].fd < 0) {
        lines[VIRTIO].fd = open_port();
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
