/*
 * External page-cache map, version 1
 * ==================================
 *
 * Says for extents of guest-physical memory which bytes of which disk they
 * hold.  Made outside of QEMU (from what the guest lists of its page cache),
 * passed as a file descriptor to x-dedup-load-map.  All numbers are little
 * endian.  Nothing in it is trusted: a wrong extent costs a read.
 *
 *   header, 64 bytes
 *     0   8  magic "QDEDUPM1"
 *     8   4  version, 1
 *    12   4  length of the header, 64
 *    16   4  number of disks, 1 .. DEDUP_MAP_MAX_DISKS
 *    20   4  0
 *    24   8  number of extents, 0 .. DEDUP_MAP_MAX_EXTENTS
 *    32  32  0
 *   disks, 256 bytes each
 *     qdev ID or QOM path of the device, padded with at least one NUL
 *   extents, 24 bytes each, ascending by address, not overlapping
 *     0   8  guest-physical address, a multiple of 4096
 *     8   8  offset on the disk as the guest sees it, a multiple of 512
 *    16   4  length in pages of 4096 bytes, 1 .. DEDUP_MAP_MAX_PAGES
 *    20   4  disk, an index into the disks
 *   nothing behind the last extent
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_MAP_FORMAT_H
#define MIGRATION_DEDUP_MAP_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#define DEDUP_MAP_MAGIC         "QDEDUPM1"
#define DEDUP_MAP_VERSION       1
#define DEDUP_MAP_HEADER_LEN    64
#define DEDUP_MAP_DISK_LEN      256
#define DEDUP_MAP_EXTENT_LEN    24
#define DEDUP_MAP_MAX_DISKS     64
#define DEDUP_MAP_MAX_EXTENTS   (1 << 24)
#define DEDUP_MAP_MAX_PAGES     (1 << 24)

typedef struct DedupMapExtent {
    uint64_t gpa;
    uint64_t offset;
    uint32_t pages;
    uint32_t disk;
} DedupMapExtent;

/*
 * Both return NULL when all is well, else what is wrong.
 *
 * Check the header and say how many bytes of disks and of extents follow.
 */
const char *dedup_map_parse_header(const uint8_t *buf, uint32_t *disks,
                                   uint64_t *extents);
/* Decode one extent; *@end is where the one before ended, 0 at first */
const char *dedup_map_parse_extent(const uint8_t *buf, uint32_t disks,
                                   uint64_t *end, DedupMapExtent *e);

#endif
