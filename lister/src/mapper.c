/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mapper.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <linux/dm-ioctl.h>

#define WHY 96
#define BUFFER (256 << 10)

/* As the kernel's huge_encode_dev() */
static uint64_t encode(unsigned major, unsigned minor)
{
    return (minor & 0xff) | (uint64_t)(major & 0xfff) << 8 |
           (uint64_t)(minor & ~0xffu) << 12;
}

int mapper_parse(const void *buffer, uint32_t size,
                 struct mapper_target *targets, char *why)
{
    struct dm_target_spec spec;
    uint64_t next = 0;
    struct dm_ioctl io;

    memcpy(&io, buffer, sizeof(io));
    size = io.data_size < size ? io.data_size : size;
    if (io.target_count > MAPPER_MAX_TARGETS || io.data_start > size) {
        snprintf(why, WHY, "device mapper table that is too long");
        return -1;
    }
    for (uint32_t i = 0; i < io.target_count; i++) {
        struct mapper_target *t = &targets[i];
        uint64_t at = io.data_start + next, text = at + sizeof(spec);
        unsigned long long offset;

        if (text >= size ||
            !memchr((const char *)buffer + text, 0, size - text)) {
            snprintf(why, WHY, "device mapper table that is malformed");
            return -1;
        }
        memcpy(&spec, (const char *)buffer + at, sizeof(spec));
        spec.target_type[sizeof(spec.target_type) - 1] = 0;
        if (strcmp(spec.target_type, "linear")) {
            snprintf(why, WHY, "device mapper target %s", spec.target_type);
            return -1;
        }
        if (sscanf((const char *)buffer + text, "%u:%u %llu", &t->major,
                   &t->minor, &offset) != 3) {
            snprintf(why, WHY, "device mapper table that is malformed");
            return -1;
        }
        t->start = spec.sector_start;
        t->length = spec.length;
        t->offset = offset;
        /* From the beginning of the data, not from this target */
        next = spec.next;
    }
    return io.target_count;
}

int mapper_table(unsigned major, unsigned minor,
                 struct mapper_target *targets, char *why)
{
    struct dm_ioctl *io = NULL;
    int fd = open("/dev/mapper/control", O_RDONLY | O_CLOEXEC), count = -1;

    snprintf(why, WHY, "device mapper that cannot be asked");
    if (fd >= 0) {
        io = calloc(1, BUFFER);
    }
    if (io) {
        io->version[0] = DM_VERSION_MAJOR;
        io->data_size = BUFFER;
        io->data_start = sizeof(*io);
        io->dev = encode(major, minor);
        io->flags = DM_STATUS_TABLE_FLAG | DM_NOFLUSH_FLAG;
        if (!ioctl(fd, DM_TABLE_STATUS, io) &&
            !(io->flags & DM_BUFFER_FULL_FLAG)) {
            count = mapper_parse(io, BUFFER, targets, why);
        }
    }
    free(io);
    if (fd >= 0) {
        close(fd);
    }
    return count;
}
