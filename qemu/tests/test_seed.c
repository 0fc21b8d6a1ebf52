/*
 * Seeded mirror: what comes between two parts of a large disk's bitmap
 *
 * Over a block layer of one disk, whose dirty bitmap is an array.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include "test.h"
#include "qemu/osdep.h"

#define TEST_GROUP "seed"
#define GRANULE     4096
#define GRANULES    100
#define SIZE        (GRANULES * GRANULE - 512)
#define PART        64

/* As much of the block layer as the files take */
#define BDRV_SECTOR_SIZE                512
#define BLK_PERM_WRITE                  1
#define GRAPH_RDLOCK
#define GRAPH_UNLOCKED
#define GRAPH_RDLOCK_GUARD_MAINLOOP()   ((void)0)
#define GLOBAL_STATE_CODE()             ((void)0)
typedef struct BdrvChild {
    const char *name;
    BlockDriverState *bs;
    QLIST_ENTRY(BdrvChild) next;
} BdrvChild;
struct BlockDriverState {
    const char *node_name;
    bool encrypted;
    int64_t total_sectors;
    QLIST_HEAD(, BdrvChild) children;
};
struct BlockBackend {
    BlockDriverState *bs;
};
typedef struct BdrvDirtyBitmap {
    bool dirty[GRANULES];
} BdrvDirtyBitmap;
typedef struct QemuUUID {
    unsigned number;
} QemuUUID;

static BlockDriverState disk = { .node_name = "node" };
static BlockBackend backend = { &disk };
static BdrvDirtyBitmap bitmap;
static unsigned bitmaps;
static char message[200];

void error_setg(Error **errp, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
}

static BdrvDirtyBitmap *bdrv_create_dirty_bitmap(BlockDriverState *bs,
                                                 uint32_t granularity,
                                                 const char *name,
                                                 Error **errp)
{
    assert(granularity == GRANULE && !bitmaps);
    bitmaps++;
    memset(&bitmap, 0, sizeof(bitmap));
    return &bitmap;
}

static void bdrv_release_dirty_bitmap(BdrvDirtyBitmap *b)
{
    assert(bitmaps--);
}

static void mark(int64_t offset, int64_t bytes, bool dirty)
{
    assert(bitmaps && offset >= 0 && bytes > 0 && offset + bytes <= SIZE);
    for (int64_t i = offset / GRANULE; i <= (offset + bytes - 1) / GRANULE;
         i++) {
        bitmap.dirty[i] = dirty;
    }
}

static unsigned count(void)
{
    unsigned n = 0;

    for (int i = 0; i < GRANULES; i++) {
        n += bitmap.dirty[i];
    }
    return n;
}

#define bdrv_set_dirty_bitmap(b, offset, n)     mark(offset, n, true)
#define bdrv_reset_dirty_bitmap(b, offset, n)   mark(offset, n, false)
#define bdrv_get_dirty_count(b)                 ((int64_t)count() * GRANULE)
#define bdrv_dirty_bitmap_size(b)               ((int64_t)SIZE)
#define bdrv_dirty_bitmap_lock(b)               ((void)0)
#define bdrv_dirty_bitmap_unlock(b)             ((void)0)
#define bdrv_dirty_bitmap_serialize_part(b, buf, offset, n)             \
    ((void)(buf), (void)(offset), abort())
#define bdrv_skip_filters(bs)                   (bs)
#define bdrv_is_inactive(bs)                    false
#define bdrv_get_node_name(bs)                  ((bs)->node_name)
#define blk_bs(blk)                             ((blk)->bs)
#define blk_is_inserted(blk)                    true
#define blk_all_next(blk)                       ((blk) ? NULL : &backend)
#define blk_get_attached_dev(blk)               ((void)(blk), NULL)
#define blk_get_perm(blk, perm, shared)         (*(perm) = *(shared) = 0)
#define id_wellformed(id)                       true
#define qemu_uuid_generate(uuid)                ((uuid)->number = ++uuids)
#define qemu_uuid_unparse_strdup(uuid)                                  \
    g_strdup_printf("%u", (uuid)->number)
static unsigned uuids;

#include "../src/block/dedup-seed.c"
#include "../src/block/dedup-seed-bitmap.c"

static bool failed(bool done, const char *text)
{
    bool found = !done && strstr(message, text);

    message[0] = '\0';
    return found;
}

static DedupSeed *begin(void)
{
    g_autofree char *token = NULL;

    disk.total_sectors = SIZE / BDRV_SECTOR_SIZE;
    token = dedup_seed_watch(&backend, "disk", GRANULE, NULL, NULL);
    return dedup_seed_by_token(token, NULL);
}

/* All of it, as a client has done that read all of it */
static DedupSeed *cleared(void)
{
    DedupSeed *seed = begin();
    uint64_t done = 0;
    bool more = true;

    while (more) {
        assert(dedup_seed_watch_part(seed, &done, PART, &more, NULL));
    }
    assert(count() == GRANULES);
    assert(dedup_seed_clear(seed, 0, SIZE, NULL));
    return seed;
}

static int all_proven(void)
{
    uint8_t bits[(GRANULES + 7) / 8];
    int fd = memfd_create("proven", 0);

    memset(bits, 0xff, sizeof(bits));
    assert(fd >= 0 && write(fd, bits, sizeof(bits)) == sizeof(bits));
    return fd;
}

static bool takes_no_command(DedupSeed *seed, int fd, const char *text)
{
    return failed(dedup_seed_clear(seed, 3 * GRANULE, GRANULE, NULL), text) &&
           failed(dedup_seed_claim(seed, NULL), text) &&
           failed(dedup_seed_write_dirty(seed, fd, NULL), text) &&
           failed(dedup_seed_arm_begin(seed, fd, 0, NULL), text);
}

/* Only part of it is dirty yet, the rest must not be taken for equal */
static void watch(void)
{
    DedupSeed *seed = begin();
    int fd = all_proven();
    uint64_t done = 0;
    bool more;

    CHECK(takes_no_command(seed, fd, "is being set up"));
    CHECK(dedup_seed_watch_part(seed, &done, PART, &more, NULL));
    CHECK(more && count() == PART);
    mark(80 * GRANULE, 1, true);                /* the guest */
    CHECK(takes_no_command(seed, fd, "is being set up"));
    CHECK(dedup_seed_watch_part(seed, &done, PART, &more, NULL));
    CHECK(!more && count() == GRANULES);
    CHECK(dedup_seed_clear(seed, 0, GRANULE, NULL));
    CHECK(count() == GRANULES - 1);
    dedup_seed_forget(seed);
    close(fd);
}

/* What is written after it was read stays dirty, whoever clears it now */
static void arm(void)
{
    static const uint8_t canary[DEDUP_SEED_CANARY];
    DedupSeed *seed = cleared();
    int fd = all_proven();
    uint64_t done = 0;
    bool more;

    CHECK(dedup_seed_arm_begin(seed, fd, 0, NULL));
    CHECK(dedup_seed_arm_part(seed, fd, &done, PART, &more, NULL) && more);
    mark(3 * GRANULE, 1, true);                 /* the guest */
    CHECK(takes_no_command(seed, fd, "is being armed"));
    CHECK(dedup_seed_arm_part(seed, fd, &done, PART, &more, NULL) && !more);
    dedup_seed_arm(seed, 0, canary);
    CHECK(count() == 2 && bitmap.dirty[0] && bitmap.dirty[3]);
    CHECK(takes_no_command(seed, fd, "armed before"));
    dedup_seed_forget(seed);
    close(fd);
}

/* Whoever gives up leaves a watch that can be armed again */
static void give_up(void)
{
    DedupSeed *seed = cleared();
    int fd = all_proven();
    uint64_t done = 0;
    bool more;

    CHECK(dedup_seed_arm_begin(seed, fd, 0, NULL));
    CHECK(!ftruncate(fd, 1));
    CHECK(failed(dedup_seed_arm_part(seed, fd, &done, PART, &more, NULL),
                 "Reading"));
    dedup_seed_arm_give_up(seed);
    CHECK(dedup_seed_clear(seed, 0, GRANULE, NULL));
    dedup_seed_forget(seed);
    close(fd);
}

/* There is no bitmap any more */
static void dropped(void)
{
    DedupSeed *seed = begin();
    int fd = all_proven();
    uint64_t done = 0;
    bool more;

    CHECK(dedup_seed_watch_part(seed, &done, PART, &more, NULL) && more);
    dedup_seed_resized(&disk);
    CHECK(failed(dedup_seed_watch_part(seed, &done, PART, &more, NULL),
                 "dropped: the disk was resized"));
    CHECK(!bitmaps);
    seed = cleared();                           /* takes its place */
    CHECK(!dedup_seed_next(seed));
    done = 0;
    CHECK(dedup_seed_arm_begin(seed, fd, 0, NULL));
    CHECK(dedup_seed_arm_part(seed, fd, &done, PART, &more, NULL) && more);
    dedup_seed_drop_all("others write");
    CHECK(failed(dedup_seed_arm_part(seed, fd, &done, PART, &more, NULL),
                 "dropped: others write"));
    dedup_seed_forget(seed);
    close(fd);
}

int main(void)
{
    RUN(watch);
    RUN(arm);
    RUN(give_up);
    RUN(dropped);
    return test_status;
}
