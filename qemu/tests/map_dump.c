/*
 * Print a page-cache map as QEMU reads it, or what is wrong with it
 *
 * For the cross test with nova_dedup_migrate/pagecache/mapformat.py.  Reads
 * maps from standard input, each after its length in four bytes, least
 * significant first.  Prints, for each,
 *
 *   error TEXT      or      disk NAME, then extent GPA OFFSET PAGES DISK
 *
 * and an empty line.  What map.c checks around the parser stands here, too.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "map-format.h"

static const char *dump(const uint8_t *buf, size_t len)
{
    const uint8_t *names = buf + DEDUP_MAP_HEADER_LEN, *p;
    uint64_t extents, end = 0;
    DedupMapExtent e;
    uint32_t disks;
    const char *err;

    if (len < DEDUP_MAP_HEADER_LEN) {
        return "page-cache map ends too early";
    }
    err = dedup_map_parse_header(buf, &disks, &extents);
    if (err) {
        return err;
    }
    len -= DEDUP_MAP_HEADER_LEN;
    if (len < disks * DEDUP_MAP_DISK_LEN + extents * DEDUP_MAP_EXTENT_LEN) {
        return "page-cache map ends too early";
    }
    if (len > disks * DEDUP_MAP_DISK_LEN + extents * DEDUP_MAP_EXTENT_LEN) {
        return "page-cache map is longer than it says";
    }
    for (uint32_t i = 0; i < disks; i++) {
        p = names + i * DEDUP_MAP_DISK_LEN;
        if (p[DEDUP_MAP_DISK_LEN - 1] || !p[0]) {
            return "page-cache map: name of a disk is empty or too long";
        }
    }
    p = names + disks * DEDUP_MAP_DISK_LEN;
    for (uint64_t i = 0; i < extents && !err; i++) {
        err = dedup_map_parse_extent(p + i * DEDUP_MAP_EXTENT_LEN, disks,
                                     &end, &e);
    }
    if (err) {
        return err;
    }
    for (uint32_t i = 0; i < disks; i++) {
        printf("disk %s\n", names + i * DEDUP_MAP_DISK_LEN);
    }
    end = 0;
    for (uint64_t i = 0; i < extents; i++) {
        dedup_map_parse_extent(p + i * DEDUP_MAP_EXTENT_LEN, disks, &end, &e);
        printf("extent %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu32 "\n",
               e.gpa, e.offset, e.pages, e.disk);
    }
    return NULL;
}

int main(void)
{
    uint8_t size[4];

    while (fread(size, sizeof(size), 1, stdin) == 1) {
        size_t len = size[0] | size[1] << 8 | size[2] << 16 |
                     (size_t)size[3] << 24;
        uint8_t *buf = malloc(len);
        const char *err;

        if (len && fread(buf, len, 1, stdin) != 1) {
            fprintf(stderr, "map_dump: input ends early\n");
            return EXIT_FAILURE;
        }
        err = dump(buf, len);
        if (err) {
            printf("error %s\n", err);
        }
        putchar('\n');
        free(buf);
    }
    return EXIT_SUCCESS;
}
