/*
 * External maps: hints that come from outside
 *
 * A thread reads the file to its end, checks everything, and only then reads
 * it again and puts the extents into the table, giving the main loop its turn
 * in between.  So a map is taken whole or not at all, unless it is changed
 * meanwhile, and takes the memory of a part of it.  It fills gaps: a hint that
 * was recorded from the guest's I/O knows more (hints.c) and stays.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/thread.h"
#include "qapi/error.h"
#include "system/block-backend.h"
#include "dedup-int.h"
#include "hold.h"
#include "map-format.h"
#include "trace.h"

/* How long the main loop waits at most, and what is put in between looks */
#define TURN_US         500
#define PAGES_AT_ONCE   4096
/* Extents in memory */
#define PART            16384
/* Enough for whoever waits for the lock to take it */
#define PAUSE_US        100

static QemuMutex map_lock;

static void __attribute__((constructor)) map_lock_init(void)
{
    qemu_mutex_init(&map_lock);
}

static struct {                 /* under map_lock */
    DedupMapState state;
    uint64_t pages, kept, skipped;
    char *error;
} map;

typedef struct MapLoad {
    int fd;
    uint32_t ndisks;
    uint64_t nextents;
    char (*names)[DEDUP_MAP_DISK_LEN];
    off_t offset;                       /* of the extents in the file */
    DedupMapExtent *part;               /* PART of them */
    unsigned slots[DEDUP_MAP_MAX_DISKS];
    MemoryRegionSection section;        /* the last one; under the BQL */
    bool beyond;                        /* likewise: nothing comes behind */
    uint64_t pages, kept, skipped;
} MapLoad;

static const char *read_whole(int fd, void *buf, size_t len)
{
    uint8_t *p = buf;

    while (len) {
        ssize_t n = read(fd, p, len);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return "reading the page-cache map failed";
        }
        if (n == 0) {
            return "page-cache map ends too early";
        }
        p += n;
        len -= n;
    }
    return NULL;
}

/*
 * Read @n extents from the @first one on, and check them; *@end is where the
 * one before ended
 */
static const char *map_read_part(MapLoad *m, uint64_t first, unsigned n,
                                 uint64_t *end)
{
    g_autofree uint8_t *buf = g_malloc(n * DEDUP_MAP_EXTENT_LEN);
    const char *err = NULL;

    if (lseek(m->fd, m->offset + first * DEDUP_MAP_EXTENT_LEN, SEEK_SET) < 0) {
        return "reading the page-cache map failed";
    }
    err = read_whole(m->fd, buf, n * DEDUP_MAP_EXTENT_LEN);
    for (unsigned i = 0; !err && i < n; i++) {
        err = dedup_map_parse_extent(buf + i * DEDUP_MAP_EXTENT_LEN,
                                     m->ndisks, end, &m->part[i]);
    }
    return err;
}

static const char *map_read(MapLoad *m)
{
    uint8_t header[DEDUP_MAP_HEADER_LEN], more;
    const char *err = read_whole(m->fd, header, sizeof(header));
    uint64_t end = 0;

    if (!err) {
        err = dedup_map_parse_header(header, &m->ndisks, &m->nextents);
    }
    if (err) {
        return err;
    }
    m->names = g_malloc(m->ndisks * DEDUP_MAP_DISK_LEN);
    m->part = g_new(DedupMapExtent, PART);
    err = read_whole(m->fd, m->names, m->ndisks * DEDUP_MAP_DISK_LEN);
    for (uint32_t i = 0; !err && i < m->ndisks; i++) {
        if (m->names[i][DEDUP_MAP_DISK_LEN - 1] || !m->names[i][0]) {
            err = "page-cache map: name of a disk is empty or too long";
        }
    }
    m->offset = lseek(m->fd, 0, SEEK_CUR);
    for (uint64_t i = 0; !err && i < m->nextents; i += PART) {
        err = map_read_part(m, i, MIN(PART, m->nextents - i), &end);
    }
    if (!err && !read_whole(m->fd, &more, 1)) {
        err = "page-cache map is longer than it says";
    }
    return err;
}

/* BQL.  Until then @section holds. */
static void map_turn_ends(MapLoad *m)
{
    if (m->section.mr) {
        memory_region_unref(m->section.mr);
    }
    m->section.mr = NULL;
    m->beyond = false;
}

/* BQL.  What is at @gpa or next behind it; extents are sorted. */
static bool map_find(MapLoad *m, hwaddr gpa)
{
    if (m->beyond) {
        return false;
    }
    if (!m->section.mr ||
        gpa - m->section.offset_within_address_space >=
        int128_get64(m->section.size)) {
        map_turn_ends(m);
        m->section = memory_region_find(get_system_memory(), gpa,
                                        INT64_MAX - gpa);
        m->beyond = !m->section.mr;
    }
    return m->section.mr != NULL;
}

/* BQL */
static void map_apply(MapLoad *m, const DedupMapExtent *e)
{
    const MemoryRegionSection *s = &m->section;
    hwaddr gpa = e->gpa, end = gpa + ((uint64_t)e->pages << DEDUP_PAGE_BITS);
    uint64_t sector = e->offset / DEDUP_SECTOR;

    while (gpa < end && map_find(m, gpa)) {
        hwaddr from = MAX(gpa, s->offset_within_address_space);
        hwaddr to = MIN(end, s->offset_within_address_space +
                             int128_get64(s->size));
        uint64_t skip = (MIN(from, end) - gpa) >> DEDUP_PAGE_BITS;
        uint64_t n = to > from ? (to - from) >> DEDUP_PAGE_BITS : 0;
        uint64_t at = s->offset_within_region +
                      (from - s->offset_within_address_space);
        DedupRam *dr = NULL;

        if (memory_region_is_ram(s->mr) && !memory_region_is_rom(s->mr) &&
            !(at % DEDUP_PAGE_SIZE)) {
            dr = dedup_ram_get(s->mr->ram_block);
        }
        m->skipped += skip;
        sector += skip * (DEDUP_PAGE_SIZE / DEDUP_SECTOR);
        for (uint64_t i = 0; i < n && dr && m->slots[e->disk]; i++) {
            if (dedup_hint_fill(dr, (at >> DEDUP_PAGE_BITS) + i,
                                m->slots[e->disk], sector +
                                i * (DEDUP_PAGE_SIZE / DEDUP_SECTOR), 0)) {
                m->pages++;
            } else {
                m->kept++;
            }
        }
        if (!dr || !m->slots[e->disk]) {
            m->skipped += n;
        }
        if (!skip && !n) {
            /* A region that is shorter than a page */
            m->skipped += n = 1;
        }
        sector += n * (DEDUP_PAGE_SIZE / DEDUP_SECTOR);
        n += skip;
        gpa += n << DEDUP_PAGE_BITS;
    }
    if (gpa < end) {
        m->skipped += (end - gpa) >> DEDUP_PAGE_BITS;
    }
}

/*
 * BQL.  Cut off what can be taken at once from @e, to *@part: nothing that is
 * there, or so many pages.  Returns what that costs, in pages.
 */
static uint64_t map_cut(MapLoad *m, DedupMapExtent *e, DedupMapExtent *part)
{
    uint64_t cost = PAGES_AT_ONCE / 64, gap = e->pages;

    if (map_find(m, e->gpa)) {
        hwaddr from = m->section.offset_within_address_space;

        gap = from > e->gpa ? (from - e->gpa) >> DEDUP_PAGE_BITS : 0;
    }
    *part = *e;
    part->pages = MIN(e->pages, gap ?: PAGES_AT_ONCE);
    cost += gap ? 0 : part->pages;
    e->pages -= part->pages;
    e->gpa += (uint64_t)part->pages << DEDUP_PAGE_BITS;
    e->offset += (uint64_t)part->pages << DEDUP_PAGE_BITS;
    return cost;
}

/* BQL.  What can be taken in a turn, of @n extents from *@i on */
static void map_take_turn(MapLoad *m, unsigned *i, unsigned n)
{
    int64_t turn_ends = g_get_monotonic_time() + TURN_US;
    DEDUP_HOLD("bql", "map-turn");
    uint64_t pages = 0, steps = 0;

    while (*i < n) {
        DedupMapExtent part;

        pages += map_cut(m, &m->part[*i], &part);
        map_apply(m, &part);
        *i += m->part[*i].pages == 0;
        if (pages >= PAGES_AT_ONCE) {
            dedup_hold_steps(pages);
            steps += pages;
            pages = 0;
            if (steps >= dedup_at_once(DEDUP_STEPS / 2) ||
                (g_get_monotonic_time() >= turn_ends &&
                 !dedup_inject.no_bounds)) {
                break;
            }
        }
    }
    map_turn_ends(m);
}

static void map_take_part(MapLoad *m, unsigned n)
{
    unsigned i = 0;

    while (true) {
        map_take_turn(m, &i, n);
        if (i >= n) {
            return;
        }
        bql_unlock();
        g_usleep(PAUSE_US);         /* the lock is not fair */
        bql_lock();
    }
}

static const char *map_take(MapLoad *m)
{
    const char *err = NULL;
    uint64_t end = 0;

    bql_lock();
    for (uint32_t d = 0; d < m->ndisks; d++) {
        BlockBackend *blk = dedup_blk_by_device(m->names[d], NULL);

        m->slots[d] = blk ? dedup_slot_of(blk) : 0;
    }
    bql_unlock();
    for (uint64_t i = 0; !err && i < m->nextents; i += PART) {
        unsigned n = MIN(PART, m->nextents - i);

        err = map_read_part(m, i, n, &end);
        if (!err) {
            bql_lock();
            map_take_part(m, n);
            bql_unlock();
        }
    }
    return err;
}

static void *map_thread(void *opaque)
{
    MapLoad *m = opaque;
    const char *err;

    rcu_register_thread();
    err = map_read(m);
    if (!err) {
        err = map_take(m);
    }
    close(m->fd);
    WITH_QEMU_LOCK_GUARD(&map_lock) {
        map.state = err ? DEDUP_MAP_STATE_FAILED : DEDUP_MAP_STATE_LOADED;
        map.error = g_strdup(err);
        map.pages = m->pages;
        map.kept = m->kept;
        map.skipped = m->skipped;
    }
    trace_dedup_map_loaded(m->pages, m->skipped, err ?: "");
    g_free(m->names);
    g_free(m->part);
    g_free(m);
    rcu_unregister_thread();
    return NULL;
}

void dedup_map_load(int fd, Error **errp)
{
    QemuThread thread;
    struct stat st;
    MapLoad *m;

    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        error_setg(errp, "A page-cache map must be a regular file or memfd");
        close(fd);
        return;
    }
    WITH_QEMU_LOCK_GUARD(&map_lock) {
        if (map.state == DEDUP_MAP_STATE_LOADING) {
            error_setg(errp, "Another page-cache map is being read");
            close(fd);
            return;
        }
        map.state = DEDUP_MAP_STATE_LOADING;
        map.pages = map.kept = map.skipped = 0;
        g_clear_pointer(&map.error, g_free);
    }
    m = g_new0(MapLoad, 1);
    m->fd = fd;
    qemu_thread_create(&thread, "dedup-map", map_thread, m,
                       QEMU_THREAD_DETACHED);
}

void dedup_map_query(DedupHintsInfo *info)
{
    QEMU_LOCK_GUARD(&map_lock);
    info->map_state = map.state;
    info->map_pages = map.pages;
    info->map_kept = map.kept;
    info->map_skipped = map.skipped;
    info->map_error = g_strdup(map.error);
}
