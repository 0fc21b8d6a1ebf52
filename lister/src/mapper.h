/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the device mapper: what LVM volumes are made of */
#ifndef MAPPER_H
#define MAPPER_H

#include <stdint.h>

#define MAPPER_MAX_TARGETS 1024

/* All in sectors of 512 bytes */
struct mapper_target {
    uint64_t start, length, offset;
    unsigned major, minor;      /* of the device below */
};

/*
 * The table of the device major:minor.  Returns how many targets there are;
 * -1 when it is not made of linear targets, and `why` (96 bytes) says of
 * what.
 */
int mapper_table(unsigned major, unsigned minor,
                 struct mapper_target *targets, char *why);

/* A buffer the kernel has filled, for tests; returns as above */
int mapper_parse(const void *buffer, uint32_t size,
                 struct mapper_target *targets, char *why);

#endif
