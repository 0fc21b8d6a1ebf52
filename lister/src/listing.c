/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "listing.h"
#include "compact.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint8_t *put(uint8_t *p, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        p[i] = value >> (8 * i);
    }
    return p + bytes;
}

static uint64_t get(const uint8_t *p, unsigned bytes)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < bytes; i++) {
        value |= (uint64_t)p[i] << (8 * i);
    }
    return value;
}

void listing_clean(char *text)
{
    for (; *text; text++) {
        if (*text < 0x20 || *text > 0x7e) {
            *text = '?';
        }
    }
}

static void write_all(struct listing *l, const uint8_t *p, size_t length)
{
    while (length && !l->broken) {
        ssize_t put = write(l->fd, p, length);

        if (put > 0) {
            p += put;
            length -= put;
        } else if (put < 0 && errno == EAGAIN) {
            struct pollfd wait = { .fd = l->fd, .events = POLLOUT };

            /* The alarm of main() ends a wait for a host that has gone. */
            poll(&wait, 1, -1);
        } else if (put == 0 || errno != EINTR) {
            l->broken = true;
        }
    }
}

/* The payload is in place, behind the room for the header. */
static void send_frame(struct listing *l, enum listing_type type,
                       uint32_t length)
{
    uint8_t *p = l->payload;

    memcpy(p, LISTING_MAGIC, 4);
    p = put(p + 4, type, 2);
    p = put(p, 0, 2);
    p = put(p, length, 4);
    put(p, l->frame++, 4);
    write_all(l, l->payload, LISTING_HEADER_LEN + length);
}

static uint8_t *new_payload(struct listing *l, uint32_t length)
{
    memset(l->payload + LISTING_HEADER_LEN, 0, length);
    return l->payload + LISTING_HEADER_LEN;
}

void listing_begin(struct listing *l, int fd, uint64_t max_extents,
                   uint32_t page_size, uint64_t nonce, bool compact)
{
    uint8_t *p;

    memset(l, 0, sizeof(*l));
    l->fd = fd;
    l->compact = compact;
    l->max_extents = max_extents < LISTING_MAX_EXTENTS ? max_extents :
                     LISTING_MAX_EXTENTS;
    p = new_payload(l, LISTING_BEGIN_LEN);
    p = put(p, LISTING_VERSION, 4);
    p = put(p, page_size, 4);
    put(p, nonce, 8);
    send_frame(l, LISTING_BEGIN, LISTING_BEGIN_LEN);
}

static uint8_t *put_text(uint8_t *p, const char *text, size_t length)
{
    memcpy(p, text, strnlen(text, length));
    return p + length;
}

void listing_put_disk(struct listing *l, const struct listing_disk *disk)
{
    uint8_t *p = new_payload(l, LISTING_DISK_LEN);

    if (l->disks == LISTING_MAX_DISKS) {
        return;
    }
    l->sizes[l->disks] = disk->size;
    p = put(p, l->disks++, 4);
    p = put(p, disk->bus, 4);
    p = put(p, disk->size, 8);
    p = put(p, disk->sector, 4);
    p = put(p, disk->flags, 4);
    p = put(p, disk->domain, 4);
    p = put(p, disk->root, 1);
    p = put(p, disk->steps, 1);
    p = put(p, 0, 2);
    memcpy(p, disk->path, LISTING_MAX_PCI_STEPS);
    p = put(p + LISTING_MAX_PCI_STEPS, disk->pci_bus, 1);
    p = put(p, 0, 7);
    p = put(p, disk->channel, 4);
    p = put(p, disk->target, 4);
    p = put(p, disk->unit, 8);
    p = put_text(p, disk->name, LISTING_NAME_LEN);
    p = put_text(p, disk->serial, LISTING_SERIAL_LEN);
    put_text(p, disk->wwid, LISTING_WWID_LEN);
    send_frame(l, LISTING_DISK, LISTING_DISK_LEN);
}

static void send_extents(struct listing *l)
{
    uint32_t length = l->pending * LISTING_EXTENT_LEN;

    if (l->pending && l->compact) {
        length = compact_encode(l->payload + LISTING_HEADER_LEN, l->held,
                                l->pending);
        send_frame(l, LISTING_COMPACT, length);
    } else if (l->pending) {
        send_frame(l, LISTING_EXTENTS, length);
    }
    l->pending = 0;
}

static void put_extent(struct listing *l, const struct listing_extent *e)
{
    uint8_t *p = l->payload + LISTING_HEADER_LEN +
                 l->pending++ * LISTING_EXTENT_LEN;

    p = put(p, e->gpa | (e->pages - 1), 8);
    put(p, e->offset | (uint64_t)e->kind << 6 | e->disk, 8);
    if (l->pending == LISTING_MAX_FRAME_EXTENTS) {
        send_extents(l);
    }
}

static void hold_extent(struct listing *l, const struct listing_extent *e)
{
    if (l->pending && !compact_takes(&l->held[0], e)) {
        send_extents(l);
    }
    l->held[l->pending++] = *e;
    if (l->pending == LISTING_MAX_COMPACT_EXTENTS) {
        send_extents(l);
    }
}

static void put_last(struct listing *l)
{
    const struct listing_extent *e = &l->last;

    if (!e->pages) {
        return;
    }
    if (l->compact) {
        hold_extent(l, e);
    } else {
        put_extent(l, e);
    }
    if (e->kind == LISTING_KIND_DATA) {
        l->data_pages += e->pages;
    } else {
        l->metadata_pages += e->pages;
    }
    l->extents++;
    l->last.pages = 0;
}

static bool joins(const struct listing_extent *a,
                  const struct listing_extent *b)
{
    return a->pages && a->disk == b->disk && a->kind == b->kind &&
           a->gpa + a->pages * LISTING_PAGE == b->gpa &&
           a->offset + a->pages * LISTING_PAGE == b->offset &&
           a->pages + b->pages <= LISTING_MAX_EXTENT_PAGES;
}

static bool possible(const struct listing *l, const struct listing_extent *e)
{
    uint64_t length = e->pages * LISTING_PAGE;

    return e->pages && e->pages <= UINT32_MAX && e->disk < l->disks &&
           !(e->gpa % LISTING_PAGE) && !(e->offset % LISTING_SECTOR) &&
           e->gpa >= l->end && e->gpa <= INT64_MAX - length &&
           e->offset <= l->sizes[e->disk] &&
           length <= l->sizes[e->disk] - e->offset;
}

bool listing_add(struct listing *l, const struct listing_extent *e)
{
    struct listing_extent part = *e;

    if (l->broken || !possible(l, e)) {
        return false;
    }
    while (part.pages) {
        uint64_t all = part.pages;

        part.pages = all < LISTING_MAX_EXTENT_PAGES ? all :
                     LISTING_MAX_EXTENT_PAGES;
        if (joins(&l->last, &part)) {
            l->last.pages += part.pages;
        } else {
            if (l->extents + !!l->last.pages >= l->max_extents) {
                return false;
            }
            put_last(l);
            l->last = part;
        }
        l->end = part.gpa + part.pages * LISTING_PAGE;
        part.gpa = l->end;
        part.offset += part.pages * LISTING_PAGE;
        part.pages = all - part.pages;
    }
    return true;
}

void listing_skip(struct listing *l, enum listing_reason reason,
                  uint64_t pages, const char *format, ...)
{
    struct listing_skipped *s;
    char text[LISTING_MAX_TEXT + 1];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    listing_clean(text);
    for (uint32_t i = 0; i < l->skips.count; i++) {
        s = &l->skips.reason[i];
        if (s->reason == reason && !strcmp(s->text, text)) {
            s->pages += pages;
            return;
        }
    }
    if (l->skips.count == LISTING_MAX_SKIPPED || !text[0]) {
        return;
    }
    s = &l->skips.reason[l->skips.count++];
    s->reason = reason;
    s->pages = pages;
    strcpy(s->text, text);
}

static void send_skipped(struct listing *l)
{
    for (uint32_t i = 0; i < l->skips.count; i++) {
        const struct listing_skipped *s = &l->skips.reason[i];
        size_t length = strlen(s->text);
        uint8_t *p = new_payload(l, LISTING_SKIPPED_LEN);

        p = put(p, s->reason, 4);
        p = put(p, 0, 4);
        p = put(p, s->pages, 8);
        memcpy(p, s->text, length);
        send_frame(l, LISTING_SKIPPED, LISTING_SKIPPED_LEN + length);
    }
}

void listing_end(struct listing *l, enum listing_status status,
                 enum listing_method method,
                 const struct listing_figures *figures, uint64_t us,
                 uint64_t cpu_us, uint64_t memory, uint64_t disk_bytes)
{
    uint64_t numbers[15];
    uint8_t *p;

    put_last(l);
    send_extents(l);
    send_skipped(l);
    numbers[0] = l->extents;
    numbers[1] = l->data_pages;
    numbers[2] = l->metadata_pages;
    numbers[3] = figures->cached;
    numbers[4] = figures->dirty;
    numbers[5] = figures->writeback;
    numbers[6] = figures->not_read;
    numbers[7] = figures->no_disk;
    numbers[8] = figures->no_place;
    numbers[9] = figures->files;
    numbers[10] = us;
    numbers[11] = cpu_us;
    numbers[12] = memory;
    numbers[13] = disk_bytes;
    numbers[14] = figures->examined;
    p = new_payload(l, LISTING_END_LEN);
    p = put(p, status, 4);
    p = put(p, method, 4);
    for (unsigned i = 0; i < 15; i++) {
        p = put(p, numbers[i], 8);
    }
    send_frame(l, LISTING_END, LISTING_END_LEN);
}

long listing_parse_header(const uint8_t *header, uint16_t *type,
                          uint32_t *number)
{
    uint32_t length = get(header + 8, 4);

    if (memcmp(header, LISTING_MAGIC, 4) || get(header + 6, 2) ||
        length > LISTING_MAX_PAYLOAD) {
        return -1;
    }
    *type = get(header + 4, 2);
    *number = get(header + 12, 4);
    return length;
}

const char *listing_parse_request(const uint8_t *payload, uint32_t length,
                                  struct listing_request *request)
{
    if (length != LISTING_REQUEST_LEN) {
        return "the request has another length";
    }
    if (get(payload, 4) != LISTING_VERSION) {
        return "the request is of another version";
    }
    *request = (struct listing_request) {
        .nonce = get(payload + 8, 8),
        .limit_ms = get(payload + 4, 4),
        .memory_kib = get(payload + 16, 4),
        .extents = get(payload + 20, 4),
    };
    for (unsigned i = 24; i < LISTING_REQUEST_LEN; i++) {
        if (payload[i]) {
            return "reserved fields of the request are not zero";
        }
    }
    if (!request->nonce) {
        return "the request has no nonce";
    }
    if (!request->limit_ms || request->limit_ms > LISTING_MAX_TIME_MS ||
        request->memory_kib < LISTING_MIN_MEMORY_KIB ||
        !request->extents || request->extents > LISTING_MAX_EXTENTS) {
        return "limits of the request are out of bounds";
    }
    return NULL;
}
