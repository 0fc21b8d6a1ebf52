/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and writing to serial and virtio-serial ports. */
#define _GNU_SOURCE
#include "ports.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <linux/serial.h>
#include <unistd.h>

#define WRITE_WAIT_MS 2000

static int open_device(const char *name)
{
    char path[320];

    snprintf(path, sizeof(path), "/dev/%s", name);
    return open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
}

int ports_open_serial(const char *name)
{
    int fd = open_device(name);
    struct serial_struct info;
    struct termios raw;

    if (fd < 0) {
        return -1;
    }
    if (!ioctl(fd, TIOCGSERIAL, &info) && info.type == PORT_UNKNOWN) {
        close(fd);
        return -1;
    }
    if (!tcgetattr(fd, &raw)) {
        cfmakeraw(&raw);
        cfsetspeed(&raw, B115200);
        raw.c_cflag |= CLOCAL | CREAD;
        tcsetattr(fd, TCSANOW, &raw);
    }
    return fd;
}

int ports_open_virtio(const char *name)
{
    DIR *ports = opendir("/sys/class/virtio-ports");
    struct dirent *entry;
    int fd = -1;

    while (ports && fd < 0 && (entry = readdir(ports))) {
        char path[320], found[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name",
                 entry->d_name);
        file = fopen(path, "r");
        if (!file) {
            continue;
        }
        if (fscanf(file, "%31s", found) == 1 && !strcmp(found, name)) {
            fd = open_device(entry->d_name);
        }
        fclose(file);
    }
    if (ports) {
        closedir(ports);
    }
    return fd;
}

void ports_write(int port, const char *text, size_t length)
{
    size_t at = 0;

    while (at < length) {
        ssize_t put = write(port, text + at, length - at);

        if (put > 0) {
            at += put;
        } else if (put < 0 && errno == EAGAIN) {
            struct pollfd wait = { .fd = port, .events = POLLOUT };

            if (poll(&wait, 1, WRITE_WAIT_MS) <= 0 ||
                !(wait.revents & POLLOUT)) {
                return;
            }
        } else if (put == 0 || errno != EINTR) {
            return;
        }
    }
}
