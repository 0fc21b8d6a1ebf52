/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "sysfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *sysfs_root = "";

#define PATH(path, format)                                              \
    char path[PATH_MAX];                                                \
    int lead_ = snprintf(path, sizeof(path), "%s", sysfs_root);         \
    va_list args;                                                       \
    va_start(args, format);                                             \
    vsnprintf(path + lead_, sizeof(path) - lead_, format, args);        \
    va_end(args)

static long read_file(const char *path, void *into, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;

    if (fd < 0) {
        return -1;
    }
    got = read(fd, into, size);
    close(fd);
    return got;
}

static bool read_text(const char *path, char *text, size_t size)
{
    long got = read_file(path, text, size - 1);
    size_t lead;

    if (got < 0) {
        text[0] = 0;
        return false;
    }
    while (got && (isspace((unsigned char)text[got - 1]) || !text[got - 1])) {
        got--;
    }
    text[got] = 0;
    lead = strspn(text, " \t\n");
    memmove(text, text + lead, strlen(text + lead) + 1);
    return true;
}

bool sysfs_text(char *text, size_t size, const char *format, ...)
{
    PATH(path, format);
    return read_text(path, text, size);
}

bool sysfs_number(uint64_t *number, const char *format, ...)
{
    char text[32], *end;

    PATH(path, format);
    if (!read_text(path, text, sizeof(text)) || !isdigit((unsigned char)*text)) {
        return false;
    }
    errno = 0;
    *number = strtoull(text, &end, 10);
    return !errno && !*end;
}

long sysfs_bytes(void *into, size_t size, const char *format, ...)
{
    PATH(path, format);
    return read_file(path, into, size);
}

bool sysfs_exists(const char *format, ...)
{
    PATH(path, format);
    return !access(path, F_OK);
}

bool sysfs_link(char *name, size_t size, const char *format, ...)
{
    char target[PATH_MAX];
    const char *last;
    ssize_t got;

    PATH(path, format);
    got = readlink(path, target, sizeof(target) - 1);
    if (got < 0) {
        return false;
    }
    target[got] = 0;
    last = strrchr(target, '/');
    return snprintf(name, size, "%s", last ? last + 1 : target) < (int)size;
}
