/*
 * Parsing of external page-cache maps, see map-format.h.  No QEMU state.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <string.h>
#include "map-format.h"

static inline uint64_t get_le(const uint8_t *p, unsigned bytes)
{
    uint64_t v = 0;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    memcpy(&v, p, bytes);           /* one load: there are millions */
#else
    while (bytes--) {
        v = v << 8 | p[bytes];
    }
#endif
    return v;
}

const char *dedup_map_parse_header(const uint8_t *buf, uint32_t *disks,
                                   uint64_t *extents)
{
    static const uint8_t zero[32];

    if (memcmp(buf, DEDUP_MAP_MAGIC, 8)) {
        return "not a page-cache map (wrong magic)";
    }
    if (get_le(buf + 8, 4) != DEDUP_MAP_VERSION ||
        get_le(buf + 12, 4) != DEDUP_MAP_HEADER_LEN) {
        return "version of the page-cache map is not supported";
    }
    *disks = get_le(buf + 16, 4);
    *extents = get_le(buf + 24, 8);
    if (get_le(buf + 20, 4) || memcmp(buf + 32, zero, 32)) {
        return "reserved fields of the page-cache map are not zero";
    }
    if (*disks < 1 || *disks > DEDUP_MAP_MAX_DISKS) {
        return "page-cache map: number of disks is out of bounds";
    }
    if (*extents > DEDUP_MAP_MAX_EXTENTS) {
        return "page-cache map: too many extents";
    }
    return NULL;
}

const char *dedup_map_parse_extent(const uint8_t *buf, uint32_t disks,
                                   uint64_t *end, DedupMapExtent *e)
{
    e->gpa = get_le(buf, 8);
    e->offset = get_le(buf + 8, 8);
    e->pages = get_le(buf + 16, 4);
    e->disk = get_le(buf + 20, 4);

    if (e->gpa % 4096 || e->offset % 512) {
        return "page-cache map: an extent is not aligned";
    }
    if (e->pages < 1 || e->pages > DEDUP_MAP_MAX_PAGES ||
        e->gpa > INT64_MAX - ((uint64_t)e->pages << 12) ||
        e->offset > INT64_MAX - ((uint64_t)e->pages << 12)) {
        return "page-cache map: length of an extent is out of bounds";
    }
    if (e->disk >= disks) {
        return "page-cache map: an extent names a disk that is not listed";
    }
    if (e->gpa < *end) {
        return "page-cache map: extents overlap or are not sorted";
    }
    *end = e->gpa + ((uint64_t)e->pages << 12);
    return NULL;
}
