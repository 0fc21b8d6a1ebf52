/*
 * Fuzz page-cache maps: header and extents
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdlib.h>
#include "map-format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t extents, end = 0, before;
    DedupMapExtent e;
    uint32_t disks;

    if (size < DEDUP_MAP_HEADER_LEN ||
        dedup_map_parse_header(data, &disks, &extents)) {
        return 0;
    }
    if (!disks || disks > DEDUP_MAP_MAX_DISKS ||
        extents > DEDUP_MAP_MAX_EXTENTS) {
        abort();
    }
    data += DEDUP_MAP_HEADER_LEN;
    size -= DEDUP_MAP_HEADER_LEN;
    /* The disks are left out: extents follow at once */
    for (; extents-- && size >= DEDUP_MAP_EXTENT_LEN;
         data += DEDUP_MAP_EXTENT_LEN, size -= DEDUP_MAP_EXTENT_LEN) {
        before = end;
        if (dedup_map_parse_extent(data, disks, &end, &e)) {
            if (end != before) {
                abort();
            }
            continue;
        }
        if (e.gpa < before || end <= e.gpa || end > INT64_MAX ||
            end - e.gpa != (uint64_t)e.pages * 4096 || e.disk >= disks ||
            e.offset + (end - e.gpa) > INT64_MAX) {
            abort();
        }
    }
    return 0;
}
