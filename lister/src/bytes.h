/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in what was read, wherever they lie; those of files are little
 * endian, as the processors that the lister is for. */
#ifndef BYTES_H
#define BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint32_t u32(const uint8_t *p)
{
    uint32_t value;

    memcpy(&value, p, sizeof(value));
    return value;
}

static inline uint64_t u64(const uint8_t *p)
{
    uint64_t value;

    memcpy(&value, p, sizeof(value));
    return value;
}

#endif
