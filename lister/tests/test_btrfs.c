/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of btrfs, whole and damaged, on a partition of a disk */
#include "test.h"
#include "btrfs.h"

#define TEST_GROUP "btrfs"
#define MIB (UINT64_C(1) << 20)
#define AT 32256                /* of the partition, bytes */
#define DUP (UINT64_C(1) << 5)

static struct disks d;
static struct btrfs_chunks c;
static uint8_t buffer[4096];
static size_t used;
static uint32_t items;

static void put(uint64_t value, size_t bytes)
{
    memcpy(buffer + used, &value, bytes);
    used += bytes;
}

static void chunk(uint64_t start, uint64_t length, uint64_t type,
                  uint16_t stripes, uint64_t device, uint64_t offset)
{
    put(7, 8);
    put(256, 8);
    put(start, 8);
    put(228, 4);
    put(48 + 32 * stripes, 4);
    put(length, 8);
    put(2, 8);
    put(65536, 8);
    put(type, 8);
    put(65536, 8);
    put(4096, 4);
    put(stripes, 2);
    put(1, 2);
    for (uint16_t i = 0; i < stripes; i++) {
        put(device, 8);
        put(offset + i * length, 8);
        used += 16;
    }
    items++;
}

/* A disk of 1000 MiB, all but its beginning a partition, btrfs on that */
static void begin(void)
{
    struct disks_device *disk, *partition;

    memset(&d, 0, sizeof(d));
    memset(buffer, 0, sizeof(buffer));
    used = items = 0;
    disk = disks_add(&d, 8, 0, "sda");
    d.piece[d.pieces++] = (struct disks_piece) { 0, 1000 * MIB, 0, 3 };
    disk->count = 1;
    partition = disks_add(&d, 8, 1, "sda1");
    disks_add_part(&d, partition, 0, 1000 * MIB - AT, disk, AT);
    c = (struct btrfs_chunks) {
        .disks = &d, .device = disks_add(&d, 0, 40, "btrfs"),
        .below = partition, .number = 1,
    };
}

static const char *parse(void)
{
    return btrfs_parse(&c, buffer, sizeof(buffer), items);
}

static bool refused(const char *why)
{
    return why && strstr(why, "chunk");
}

static void whole(void)
{
    uint64_t at;
    uint32_t disk;

    begin();
    chunk(22 * MIB, 8 * MIB, DUP | 2, 2, 1, 22 * MIB);
    chunk(30 * MIB, 50 * MIB, DUP | 4, 2, 1, 38 * MIB);
    chunk(80 * MIB, 8 * MIB, 1, 1, 1, 13 * MIB);
    chunk(88 * MIB, 8 * MIB, 1, 1, 1, 21 * MIB);
    CHECK(!parse());
    /* The last two adjoin on both sides: one piece */
    CHECK(c.count == 4 && c.device->count == 3);
    CHECK(disks_place(&d, c.device, 23 * MIB, 4096, &disk, &at) == 4096 &&
          disk == 3 && at == AT + 23 * MIB);
    CHECK(disks_place(&d, c.device, 30 * MIB, 60 * MIB, &disk, &at) ==
          50 * MIB && at == AT + 38 * MIB);
    CHECK(disks_place(&d, c.device, 95 * MIB, 2 * MIB, &disk, &at) == MIB &&
          at == AT + 28 * MIB);
    CHECK(!disks_place(&d, c.device, 21 * MIB, 4096, &disk, &at));
    CHECK(!disks_place(&d, c.device, 96 * MIB, 4096, &disk, &at));
    CHECK(!disks_place(&d, c.device, 0, 4096, &disk, &at));
}

/* Where the bytes are not those of one stripe, and what cannot be */
static void refusals(void)
{
    for (int bit = 3; bit < 64; bit++) {
        begin();
        chunk(MIB, MIB, 1 | UINT64_C(1) << bit, bit == 5 ? 2 : 1, 1, 0);
        CHECK(!parse() == (bit == 5));
    }
    begin();
    chunk(MIB, MIB, 1, 2, 1, 0);
    CHECK(refused(parse()));
    begin();
    chunk(MIB, MIB, DUP | 1, 1, 1, 0);
    CHECK(refused(parse()));
    /* Of a seed */
    begin();
    chunk(MIB, MIB, 1, 1, 2, 0);
    CHECK(refused(parse()));
    begin();
    chunk(MIB, 0, 1, 1, 1, 0);
    CHECK(refused(parse()));
    begin();
    chunk(4 * MIB, MIB, 1, 1, 1, 0);
    chunk(4 * MIB + 4096, MIB, 1, 1, 1, 0);
    CHECK(refused(parse()));
    begin();
    chunk(INT64_MAX - MIB + 1, MIB, 1, 1, 1, 0);
    CHECK(refused(parse()));
    begin();
    chunk(UINT64_MAX - MIB, 2 * MIB, 1, 1, 1, 0);
    CHECK(refused(parse()));
    begin();
    chunk(MIB, 2 * MIB, 1, 1, 1, 999 * MIB);
    CHECK(refused(parse()));
    begin();
    chunk(MIB, MIB, 1, 1, 1, UINT64_MAX - 4096);
    CHECK(refused(parse()));
}

/* More than the table of pieces holds, in many results */
static void too_many(void)
{
    const char *why = NULL;
    uint64_t n = 0;

    for (begin(); !why && n < 2 * DISKS_MAX_PIECES; n++) {
        used = items = 0;
        chunk(n * 65536, 65536, 1, 1, 1, n % 2 * MIB);
        why = parse();
    }
    CHECK(refused(why) && n < DISKS_MAX_PIECES && n > DISKS_MAX_PIECES / 2);
    for (begin(), why = NULL; !why; n++) {
        used = items = 0;
        chunk(c.end, 4096, 1, 1, 1, c.end);
        why = parse();
    }
    CHECK(refused(why) && c.device->count == 1);
}

static void damaged(void)
{
    for (int round = 0; round < 20000; round++) {
        uint8_t *copy;
        size_t length;

        begin();
        for (uint64_t n = below(5) + 1, at = MIB; n; n--, at += 9 * MIB) {
            chunk(at, 8 * MIB, n % 2 ? 1 : DUP | 4, n % 2 ? 1 : 2, 1, at);
        }
        for (uint64_t n = below(4); n; n--) {
            buffer[below(used)] = rnd();
        }
        length = below(used + 1);
        copy = malloc(length ? length : 1);
        memcpy(copy, buffer, length);
        CHECK(btrfs_parse(&c, copy, length, items + below(2)) ||
              length == used);
        free(copy);
    }
}

int main(void)
{
    RUN(whole);
    RUN(refusals);
    RUN(too_many);
    RUN(damaged);
    return test_status;
}
