/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a listing: frames, in the order the format wants them.
 *
 * Extents are added one after the other, ascending; ones that adjoin in
 * memory and on disk become one.  What is skipped is collected: the same
 * reason and text is one line with the sum of its pages.
 */
#ifndef LISTING_H
#define LISTING_H

#include <stdbool.h>
#include <stdint.h>

#include "listing-format.h"

struct listing_disk {
    uint64_t size;
    uint32_t sector, flags, domain;
    enum listing_bus bus;
    uint8_t root, steps, path[LISTING_MAX_PCI_STEPS], pci_bus;
    uint32_t channel, target;
    uint64_t unit;
    char name[LISTING_NAME_LEN + 1];
    char serial[LISTING_SERIAL_LEN + 1];
    char wwid[LISTING_WWID_LEN + 1];
};

struct listing_extent {
    uint64_t gpa, offset, pages;        /* pages of 4096 bytes */
    uint32_t disk;
    enum listing_kind kind;
};

/* In pages of 4096 bytes */
struct listing_figures {
    uint64_t cached, dirty, writeback, not_read, no_disk, no_place;
    uint64_t files, examined;
};

struct listing_skipped {
    enum listing_reason reason;
    uint64_t pages;
    char text[LISTING_MAX_TEXT + 1];
};

struct listing_skips {
    uint32_t count;
    struct listing_skipped reason[LISTING_MAX_SKIPPED];
};

struct listing {
    int fd;
    bool broken;                /* nobody reads on */
    uint32_t frame;
    uint32_t disks;
    uint64_t sizes[LISTING_MAX_DISKS];
    struct listing_extent last; /* pages 0: none is being made */
    uint64_t end;               /* address behind the last one */
    uint64_t extents, max_extents;
    uint64_t data_pages, metadata_pages;
    uint32_t pending;           /* extents in payload, or held */
    bool compact;               /* the host reads COMPACT frames */
    struct listing_skips skips;
    uint8_t payload[LISTING_HEADER_LEN + LISTING_MAX_PAYLOAD];
    struct listing_extent held[LISTING_MAX_COMPACT_EXTENTS];
};

struct listing_request {
    uint64_t nonce;
    uint32_t limit_ms, memory_kib, extents;
    bool compact;               /* by the header */
};

/* Frees of control characters and of what is not ASCII, in place */
void listing_clean(char *text);

void listing_begin(struct listing *l, int fd, uint64_t max_extents,
                   uint32_t page_size, uint64_t nonce, bool compact);
void listing_put_disk(struct listing *l, const struct listing_disk *disk);
/* False: it is not listed, as there are as many as may be, or it is outside
 * of the disk, or nobody reads on */
bool listing_add(struct listing *l, const struct listing_extent *e);
void listing_skip(struct listing *l, enum listing_reason reason,
                  uint64_t pages, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The numbers of extents and listed pages are the listing's own */
void listing_end(struct listing *l, enum listing_status status,
                 enum listing_method method,
                 const struct listing_figures *figures, uint64_t us,
                 uint64_t cpu_us, uint64_t memory, uint64_t disk_bytes);

/* The payload's length of a frame of this type; -1: not this header */
long listing_parse_header(const uint8_t *header, uint16_t *type,
                          uint32_t *number);
/* NULL when all is well, else what is wrong */
const char *listing_parse_request(const uint8_t *payload, uint32_t length,
                                  struct listing_request *request);

#endif
