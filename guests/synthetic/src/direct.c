/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the first disk past the page cache and measures how fast. */
#define _GNU_SOURCE
#include "guest.h"
#include "pattern.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <linux/fs.h>
#include <unistd.h>

#define BUFFER (UINT64_C(16) << 20)
#define SEQUENTIAL (UINT64_C(128) << 10)
#define RANDOM UINT64_C(4096)

/* false: it cannot be read */
bool direct_read(bool random, uint64_t us, uint64_t *bytes,
                 uint64_t *requests, uint64_t *took_us)
{
    uint64_t size = random ? RANDOM : SEQUENTIAL, disk = 0, at = 0;
    uint64_t state = 0x2545f4914f6cdd1d, begun;
    char path[64];
    uint8_t *buffer;
    int fd;

    snprintf(path, sizeof(path), "/dev/%s", files_disk_name(0));
    fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    *bytes = *requests = 0;
    if (buffer == MAP_FAILED || ioctl(fd, BLKGETSIZE64, &disk) ||
        disk < size) {
        goto out;
    }
    begun = now_us();
    do {
        if (random) {
            state = pattern_next(state);
            at = (state >> 16) % (disk / size) * size;
        } else if (at + size > disk) {
            at = 0;
        }
        if (pread(fd, buffer + *bytes % BUFFER, size, at) != (ssize_t)size) {
            *bytes = 0;
            break;
        }
        at += size;
        *bytes += size;
        ++*requests;
        *took_us = now_us() - begun;
    } while (*took_us < us);
out:
    if (buffer != MAP_FAILED) {
        munmap(buffer, BUFFER);
    }
    close(fd);
    return *bytes > 0;
}
