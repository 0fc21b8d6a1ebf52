/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is asked for at once: the gap costs less than another question, and
 * the same block of the file system answers both. */
#define GAP (1 << 20)
/* So many owners between two looks at what was read from disks */
#define LOOK_AT_READS 32
#define HANDLE_MAX 20
/* Pages of a file from here on would overflow an offset in bytes. */
#define MAX_INDEX (UINT64_C(1) << 40)
#define INO32_GEN 1             /* types of file handles, as in NFS's */
#define XFS_INO64_GEN 0x81
#define BTRFS_WITHOUT_PARENT 0x4d
/* Numbers of trees that are subvolumes: the first one, and those made later.
 * Others have files of the file system's own. */
#define BTRFS_FIRST_TREE 5
#define BTRFS_TREES 256

bool resolve_init(struct resolve *r, struct scan *s, size_t part_bytes)
{
    r->scan = s;
    r->room = part_bytes / sizeof(struct part);
    r->parts = 0;
    r->part = budget_alloc(r->budget, r->room * sizeof(struct part));
    r->order = budget_alloc(r->budget, s->room * sizeof(uint32_t));
    r->spare = budget_alloc(r->budget, s->room * sizeof(uint32_t));
    return r->part && r->order && r->spare;
}

/* Merges the sorted halves of what often is sorted already */
void resolve_sort(const struct run *run, uint32_t *order, uint32_t *spare,
                  uint32_t count)
{
    uint32_t half = count / 2, a = 0, b = half, n = 0;

    if (count < 2) {
        return;
    }
    resolve_sort(run, order, spare, half);
    resolve_sort(run, order + half, spare, count - half);
    if (run[order[half - 1]].index <= run[order[half]].index) {
        return;
    }
    memcpy(spare, order, half * sizeof(*order));
    while (a < half && b < count) {
        order[n++] = run[order[b]].index < run[spare[a]].index ?
                     order[b++] : spare[a++];
    }
    memcpy(order + n, spare + a, (half - a) * sizeof(*order));
}

static uint64_t units(const struct resolve *r, const struct run *run)
{
    return (uint64_t)run->pages * (r->scan->page_size / LISTING_PAGE);
}

static uint64_t run_start(const struct resolve *r, const struct run *run)
{
    return run->index * r->scan->page_size;
}

static uint64_t run_end(const struct resolve *r, const struct run *run)
{
    return (run->index + run->pages) * r->scan->page_size;
}

/* Bytes [offset, offset + length) of a device hold the run's memory from
 * byte `within` on.  Returns the pages that a disk holds. */
static uint64_t put_parts(struct resolve *r, uint32_t run,
                          const struct disks_device *device, uint64_t within,
                          uint64_t offset, uint64_t length, uint8_t kind)
{
    uint64_t pages = 0;

    while (length >= LISTING_PAGE) {
        uint64_t at, got, skip = 0;
        uint32_t disk;

        got = disks_place(r->disks, device, offset, length, &disk, &at);
        if (!got) {
            break;
        }
        if (got >= LISTING_PAGE && !(at % LISTING_SECTOR)) {
            if (r->parts == r->room) {
                r->full = true;
                break;
            }
            r->part[r->parts++] = (struct part) {
                at, run, within / LISTING_PAGE, got / LISTING_PAGE, disk,
                kind,
            };
            pages += got / LISTING_PAGE;
        }
        /* A page that is in two pieces is left out. */
        skip = (got + LISTING_PAGE - 1) / LISTING_PAGE * LISTING_PAGE;
        if (skip >= length) {
            break;
        }
        within += skip;
        offset += skip;
        length -= skip;
    }
    return pages;
}

/*
 * The block of btrfs's trees that begins at byte `within` of the run is on
 * disk.  One that was given up before it was written is clean as well.  In its
 * header, its own address is at byte 48, its flags are at 56: bit 0, written.
 */
static bool is_written(const struct resolve *r, const struct run *run,
                       uint64_t within)
{
    uint64_t header[2];

    return kernel_read_physical(r->scan->kernel,
                                run->page * r->scan->page_size + within + 48,
                                header, sizeof(header)) &&
           header[0] == run_start(r, run) + within && header[1] & 1;
}

/* The page with the header is the first one of a block.  Returns the pages
 * that are not listed. */
static uint64_t put_trees(struct resolve *r, const struct owner *owner,
                          const uint32_t *order,
                          const struct disks_device *device)
{
    uint64_t written = UINT64_MAX, missing = 0;

    for (uint32_t i = 0; i < owner->runs && !r->full; i++) {
        const struct run *run = &r->scan->run[order[i]];
        uint64_t start = run_start(r, run), end = run_end(r, run), stop;

        missing += units(r, run);
        for (uint64_t at = start; at < end && run->index < MAX_INDEX;
             at = stop) {
            uint64_t block = at - at % device->block;

            stop = block + device->block < end ? block + device->block : end;
            if (at == block && is_written(r, run, at - start)) {
                written = block;
            }
            if (block == written) {
                missing -= put_parts(r, order[i], device, at - start, at,
                                     stop - at, LISTING_KIND_METADATA);
            }
        }
    }
    return missing;
}

static void put_device_run(struct resolve *r, uint32_t number,
                           const struct disks_device *device)
{
    const struct run *run = &r->scan->run[number];
    uint64_t start = run_start(r, run), end = run_end(r, run);

    if (run->index < MAX_INDEX) {
        r->figures->no_place += units(r, run) -
            put_parts(r, number, device, 0, start, end - start,
                      LISTING_KIND_METADATA);
    }
}

/* Returns the pages that have no place. */
static uint64_t put_file_run(struct resolve *r, uint32_t number,
                             const struct disks_device *device, uint64_t ask)
{
    const struct run *run = &r->scan->run[number];
    uint64_t start = run_start(r, run), end = run_end(r, run), at = start;
    uint64_t wanted = units(r, run), pages = 0;

    while (at < end && !r->full) {
        const struct place_extent *e = place_at(&r->place, at, ask);
        uint64_t stop, from;

        if (!e || e->start >= end) {
            break;
        }
        stop = e->start + e->length < end ? e->start + e->length : end;
        from = e->start > at ? e->start : at;
        from = (from + LISTING_PAGE - 1) / LISTING_PAGE * LISTING_PAGE;
        if (e->usable && from < stop) {
            pages += put_parts(r, number, device, from - start,
                               e->offset + (from - e->start), stop - from,
                               LISTING_KIND_DATA);
        }
        at = stop > at ? stop : end;
    }
    return wanted > pages ? wanted - pages : 0;
}

/* Until where to ask when run `n` of `count` is the next one */
static uint64_t ask_until(const struct resolve *r, const uint32_t *order,
                          uint32_t n, uint32_t count)
{
    const struct run *run = r->scan->run;
    uint64_t end = run_end(r, &run[order[n]]);

    while (++n < count && run_start(r, &run[order[n]]) <= end + GAP) {
        uint64_t next = run_end(r, &run[order[n]]);

        end = next > end ? next : end;
    }
    return end;
}

static int open_file(const struct owner *owner, int mount)
{
    union {
        struct file_handle handle;
        char room[sizeof(struct file_handle) + HANDLE_MAX];
    } u;
    uint32_t low = owner->ino;

    if (owner->magic == MAGIC_BTRFS) {
        u.handle.handle_bytes = 20;
        u.handle.handle_type = BTRFS_WITHOUT_PARENT;
        memcpy(u.handle.f_handle, &owner->ino, 8);
        memcpy(u.handle.f_handle + 8, &owner->root, 8);
        memcpy(u.handle.f_handle + 16, &owner->generation, 4);
    } else if (owner->magic == MAGIC_XFS) {
        u.handle.handle_bytes = 12;
        u.handle.handle_type = XFS_INO64_GEN;
        memcpy(u.handle.f_handle, &owner->ino, 8);
        memcpy(u.handle.f_handle + 8, &owner->generation, 4);
    } else {
        u.handle.handle_bytes = 8;
        u.handle.handle_type = INO32_GEN;
        memcpy(u.handle.f_handle, &low, 4);
        memcpy(u.handle.f_handle + 4, &owner->generation, 4);
    }
    return open_by_handle_at(mount, &u.handle,
                             O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

static bool has_files(const struct owner *owner)
{
    return owner->magic != MAGIC_BTRFS || owner->root == BTRFS_FIRST_TREE ||
           (owner->root >= BTRFS_TREES &&
            owner->root <= UINT64_MAX - BTRFS_TREES);
}

/* The file opened and its device, or why not: then its pages are told */
static int find_file(struct resolve *r, const struct owner *owner,
                     uint64_t pages, const struct disks_device **device)
{
    const struct mount *mount;
    bool network = false;
    const char *name = owner_file_system(owner->magic, &network);
    const char *elsewhere;
    enum listing_reason reason;
    int fd;

    if (network) {
        listing_skip(r->listing, LISTING_WHY_NETWORK, pages,
                     "%s: no disk of this guest has it", name);
        return -1;
    }
    if (owner->magic != MAGIC_EXT && owner->magic != MAGIC_XFS &&
        owner->magic != MAGIC_BTRFS) {
        listing_skip(r->listing, LISTING_WHY_FILE_SYSTEM, pages,
                     "%s: where its files are on disk cannot be told",
                     name ? name : "a file system of an unknown kind");
        return -1;
    }
    *device = disks_device(r->disks, owner->major, owner->minor);
    if (!*device && owner->magic == MAGIC_BTRFS) {
        listing_skip(r->listing, LISTING_WHY_NOT_MOUNTED, pages,
                     "%s: in no mount that the lister sees", name);
        return -1;
    }
    if (!*device || !(*device)->count) {
        listing_skip(r->listing,
                     *device ? (*device)->reason : LISTING_WHY_DEVICE, pages,
                     "%s: %s", *device ? (*device)->name : name,
                     *device ? (*device)->why : "on no block device");
        return -1;
    }
    mount = mounts_of(r->mounts, owner->major, owner->minor);
    if (!mount || mount->fd < 0) {
        listing_skip(r->listing, LISTING_WHY_NOT_MOUNTED, pages,
                     "%s: in no mount that the lister sees",
                     (*device)->name);
        return -1;
    }
    if (owner->magic == MAGIC_BTRFS && r->scan->kernel->no_btrfs) {
        listing_skip(r->listing, LISTING_WHY_FILE_SYSTEM, pages, "%s: %s",
                     (*device)->name, r->scan->kernel->no_btrfs);
        return -1;
    }
    if (!S_ISREG(owner->mode) || !has_files(owner)) {
        listing_skip(r->listing, LISTING_WHY_FILES, pages,
                     "%s: files that are not ordinary ones",
                     (*device)->name);
        return -1;
    }
    fd = open_file(owner, mount->fd);
    if (fd < 0) {
        listing_skip(r->listing, LISTING_WHY_FILES, pages,
                     "%s: files that cannot be opened: %s", (*device)->name,
                     strerror(errno));
        return -1;
    }
    elsewhere = place_elsewhere(fd, owner->magic == MAGIC_XFS, &reason);
    if (elsewhere) {
        listing_skip(r->listing, reason, pages, "%s: %s", (*device)->name,
                     elsewhere);
        close(fd);
        return -1;
    }
    return fd;
}

static void resolve_file(struct resolve *r, const struct owner *owner,
                         const uint32_t *order, uint64_t pages)
{
    const struct disks_device *device;
    int fd = find_file(r, owner, pages, &device);
    uint64_t ask = 0, missing = 0;

    if (fd < 0) {
        r->figures->no_place += pages;
        return;
    }
    place_open(&r->place, fd);
    r->figures->files++;
    for (uint32_t i = 0; i < owner->runs && !r->full; i++) {
        const struct run *run = &r->scan->run[order[i]];

        if (run->index >= MAX_INDEX) {
            continue;
        }
        if (run_end(r, run) > ask) {
            ask = ask_until(r, order, i, owner->runs);
        }
        missing += put_file_run(r, order[i], device, ask);
    }
    close(fd);
    if (missing) {
        r->figures->no_place += missing;
        listing_skip(r->listing, LISTING_WHY_PLACE, missing,
                     "%s: holes, inline, unwritten, compressed or encrypted "
                     "data",
                     device->name);
    }
}

static void resolve_device(struct resolve *r, const struct owner *owner,
                           const uint32_t *order, uint64_t pages)
{
    uint64_t missing;
    const struct disks_device *device = disks_device(r->disks, owner->major,
                                                     owner->minor);

    if (!device || !device->count) {
        listing_skip(r->listing,
                     device ? device->reason : LISTING_WHY_DEVICE, pages,
                     "%s: %s", device ? device->name :
                     owner->kind == OWNER_TREE ? "trees of btrfs" :
                     "a block device", device ? device->why : "not known");
        r->figures->no_place += pages;
        return;
    }
    if (owner->kind == OWNER_TREE) {
        missing = device->block ? put_trees(r, owner, order, device) : pages;
        r->figures->no_place += missing;
        if (missing) {
            listing_skip(r->listing, LISTING_WHY_PLACE, missing,
                         "%s: blocks of trees that %s", device->name,
                         device->block ? "were not written" :
                         "are in one chunk with files");
        }
        return;
    }
    for (uint32_t i = 0; i < owner->runs && !r->full; i++) {
        put_device_run(r, order[i], device);
    }
}

/* Numbers of runs, those of one owner together */
static void group(struct resolve *r, uint32_t start, uint32_t count)
{
    struct owners *o = &r->scan->owners;
    uint32_t first = 0;

    for (uint32_t i = 0; i < o->count; i++) {
        o->owner[i].runs = 0;
    }
    for (uint32_t i = start; i < start + count; i++) {
        o->owner[r->scan->run[i].owner].runs++;
    }
    for (uint32_t i = 0; i < o->count; i++) {
        o->owner[i].first = first;
        first += o->owner[i].runs;
        o->owner[i].runs = 0;
    }
    for (uint32_t i = start; i < start + count; i++) {
        struct owner *owner = &o->owner[r->scan->run[i].owner];

        r->order[owner->first + owner->runs++] = i;
    }
}

static void list(struct resolve *r, uint32_t start, uint32_t count)
{
    memset(r->spare, 0xff, count * sizeof(*r->spare));
    for (uint32_t n = r->parts; n--;) {
        r->spare[r->part[n].run - start] = n;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct run *run = &r->scan->run[start + i];

        for (uint32_t n = r->spare[i];
             n < r->parts && r->part[n].run == start + i; n++) {
            const struct part *p = &r->part[n];
            struct listing_extent e = {
                .gpa = run->page * r->scan->page_size +
                       (uint64_t)p->page * LISTING_PAGE,
                .offset = p->offset, .pages = p->pages,
                .disk = p->disk, .kind = p->kind,
            };

            if (!listing_add(r->listing, &e) && !r->budget->ended &&
                r->listing->extents + 1 >= r->listing->max_extents) {
                r->budget->ended = LISTING_ENDED_EXTENTS;
            }
        }
    }
}

static void resolve_owner(struct resolve *r, const struct owner *owner)
{
    uint32_t *order = r->order + owner->first;
    uint64_t pages = 0;

    for (uint32_t n = 0; n < owner->runs; n++) {
        pages += units(r, &r->scan->run[order[n]]);
    }
    resolve_sort(r->scan->run, order, r->spare, owner->runs);
    if (owner->kind == OWNER_DEVICE || owner->kind == OWNER_TREE) {
        resolve_device(r, owner, order, pages);
    } else {
        resolve_file(r, owner, order, pages);
    }
}

/* False: not all parts of these runs fit into the table. */
static bool resolve_some(struct resolve *r, uint32_t start, uint32_t count)
{
    struct owners *o = &r->scan->owners;

    group(r, start, count);
    r->parts = 0;
    r->full = false;
    for (uint32_t i = 0; i < o->count && !r->full; i++) {
        if (!o->owner[i].runs) {
            continue;
        }
        if (!budget_time(r->budget) ||
            (i % LOOK_AT_READS == 0 && !budget_reads(r->budget))) {
            break;
        }
        resolve_owner(r, &o->owner[i]);
    }
    return !r->full;
}

void resolve_runs(struct resolve *r)
{
    uint32_t start = 0, count;

    for (; start < r->scan->runs && !r->budget->ended; start += count) {
        count = r->scan->runs - start;
        r->figures_before = *r->figures;
        r->skips_before = r->listing->skips;
        /* Of a single run, the parts that fit are listed. */
        while (!resolve_some(r, start, count) && count > 1) {
            count /= 2;
            *r->figures = r->figures_before;
            r->listing->skips = r->skips_before;
        }
        list(r, start, count);
    }
}
