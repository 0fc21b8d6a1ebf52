/* SPDX-License-Identifier: Apache-2.0 */
/* The files on the data disks: finding, verifying, rewriting them. */
#define _GNU_SOURCE
#include "guest.h"
#include "pattern.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 4096
#define CHUNK_PAGES 16
#define WAIT_US 10000000

struct file {
    int fd;
    unsigned disk;
    uint64_t seed, object, pages;
    uint32_t *versions;             /* of each page, 0 as delivered */
    atomic_bool dirty;
    bool writable;
};

static struct file files[MAX_FILES];
static char disks[MAX_DISKS][32];
static unsigned disk_count, file_count, active_count;
static uint64_t chunk[CHUNK_PAGES * PAGE_WORDS];
static uint64_t random_state = 2463534242u;

/* ext4 with our label?  Looked at as bytes, to mount nothing else. */
static bool is_data_disk(const char *device)
{
    uint8_t super[1024];
    int fd = open(device, O_RDONLY | O_CLOEXEC);
    bool ours;

    if (fd < 0) {
        return false;
    }
    ours = pread(fd, super, sizeof(super), 1024) == sizeof(super)
           && super[56] == 0x53 && super[57] == 0xef
           && !strncmp((char *)super + 120, "workload", 16);
    close(fd);
    return ours;
}

static void open_files(unsigned disk, const char *where, bool writable)
{
    unsigned long long seed, count, pages;
    char path[96];
    FILE *manifest;

    snprintf(path, sizeof(path), "%s/manifest", where);
    manifest = fopen(path, "r");
    if (!manifest ||
        fscanf(manifest, "%llu %llu %llu", &seed, &count, &pages) != 3) {
        fatal("%s: no manifest", disks[disk]);
    }
    fclose(manifest);
    for (uint64_t i = 0; i < count && file_count < MAX_FILES; i++) {
        struct file *file = &files[file_count];

        snprintf(path, sizeof(path), "%s/f%05llu", where,
                 (unsigned long long)i);
        file->fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
        if (file->fd < 0) {
            fatal("%s: %s", path, strerror(errno));
        }
        file->versions = calloc(pages, sizeof(*file->versions));
        if (!file->versions) {
            fatal("no memory for page versions");
        }
        file->disk = disk;
        file->seed = seed;
        file->object = i;
        file->pages = pages;
        file->writable = writable;
        file_count++;
    }
}

static void mount_disk(const char *name)
{
    char device[64], where[64];
    bool writable = true;

    for (unsigned i = 0; i < disk_count; i++) {
        if (!strcmp(disks[i], name)) {
            return;
        }
    }
    snprintf(device, sizeof(device), "/dev/%s", name);
    if (disk_count == MAX_DISKS || !is_data_disk(device)) {
        return;
    }
    snprintf(where, sizeof(where), "/data/%s", name);
    mkdir(where, 0755);
    if (mount(device, where, "ext4", MS_NOATIME, NULL)) {
        writable = false;
        if (mount(device, where, "ext4", MS_RDONLY | MS_NOATIME, NULL)) {
            fatal("cannot mount %s: %s", device, strerror(errno));
        }
    }
    snprintf(disks[disk_count], sizeof(disks[0]), "%s", name);
    open_files(disk_count++, where, writable);
}

void files_find(void)
{
    uint64_t give_up = now_us() + WAIT_US, active = 0;

    /* SCSI, IDE and NVMe disks turn up some time after their module. */
    for (;;) {
        DIR *blocks = opendir("/sys/class/block");
        struct dirent *entry;

        while (blocks && (entry = readdir(blocks))) {
            if (entry->d_name[0] != '.' && strlen(entry->d_name) < 32) {
                mount_disk(entry->d_name);
            }
        }
        if (blocks) {
            closedir(blocks);
        }
        if (disk_count >= config.disks) {
            break;
        }
        if (now_us() > give_up) {
            fatal("%u of %u data disks found", disk_count, config.disks);
        }
        usleep(20000);
    }
    while (active_count < file_count && active < config.cache) {
        active += files[active_count++].pages * PAGE_BYTES;
    }
}

static uint64_t bytes_of(unsigned count)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < count; i++) {
        bytes += files[i].pages * PAGE_BYTES;
    }
    return bytes;
}

uint64_t files_total(void)
{
    return bytes_of(file_count);
}

uint64_t files_active(void)
{
    return bytes_of(active_count);
}

uint64_t files_count(void)
{
    return file_count;
}

unsigned files_disks(void)
{
    return disk_count;
}

const char *files_disk_name(unsigned disk)
{
    return disk < disk_count ? disks[disk] : NULL;
}

static uint64_t start_of(const struct file *file, uint64_t page)
{
    return pattern_start(file->seed, file->object, page,
                         file->versions[page]);
}

static void wrong_word(const struct file *file, uint64_t offset,
                       uint64_t expected, uint64_t got)
{
    note_error("%s/f%05llu, offset %llu: expected %016llx, got %016llx",
               disks[file->disk], (unsigned long long)file->object,
               (unsigned long long)offset, (unsigned long long)expected,
               (unsigned long long)got);
}

/* Verifies up to CHUNK_PAGES pages; returns how many. */
static uint64_t verify_chunk(const struct file *file, uint64_t page)
{
    uint64_t count = file->pages - page, expected;
    ssize_t got;

    count = count < CHUNK_PAGES ? count : CHUNK_PAGES;
    got = pread(file->fd, chunk, count * PAGE_BYTES, page * PAGE_BYTES);
    if (got != (ssize_t)(count * PAGE_BYTES)) {
        note_error("%s/f%05llu, offset %llu: read: %s", disks[file->disk],
                   (unsigned long long)file->object,
                   (unsigned long long)(page * PAGE_BYTES),
                   got < 0 ? strerror(errno) : "short");
        return count;
    }
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t *words = chunk + i * PAGE_WORDS;
        int wrong = pattern_check(words, start_of(file, page + i),
                                  &expected);

        if (wrong >= 0) {
            wrong_word(file, (page + i) * PAGE_BYTES + wrong * 8,
                       expected, words[wrong]);
        }
    }
    return count;
}

uint64_t files_verify_some(uint64_t bytes)
{
    static unsigned at;
    static uint64_t page;
    uint64_t done = 0;

    while (active_count && done < bytes) {
        uint64_t count = verify_chunk(&files[at], page);

        done += count * PAGE_BYTES;
        page += count;
        if (page == files[at].pages) {
            page = 0;
            if (++at == active_count) {
                at = 0;
                counters.passes++;
            }
        }
    }
    return done;
}

uint64_t files_verify_all(bool active_only)
{
    unsigned count = active_only ? active_count : file_count;
    uint64_t page;

    for (unsigned i = 0; i < count; i++) {
        for (page = 0; page < files[i].pages;) {
            page += verify_chunk(&files[i], page);
        }
    }
    return bytes_of(count);
}

/* Bytes of the active files that are in the page cache now. */
uint64_t files_resident(void)
{
    uint64_t resident = 0;

    for (unsigned i = 0; i < active_count; i++) {
        uint64_t length = files[i].pages * PAGE_BYTES;
        void *at = mmap(NULL, length, PROT_READ, MAP_SHARED, files[i].fd, 0);
        unsigned char *there = calloc(files[i].pages, 1);

        if (at != MAP_FAILED && there && !mincore(at, length, there)) {
            for (uint64_t page = 0; page < files[i].pages; page++) {
                resident += there[page] & 1 ? PAGE_BYTES : 0;
            }
        }
        if (at != MAP_FAILED) {
            munmap(at, length);
        }
        free(there);
    }
    return resident;
}

bool files_pick(struct run *run)
{
    uint64_t left;

    if (!active_count) {
        return false;
    }
    random_state = pattern_next(random_state);
    run->file = random_state % active_count;
    run->page = (random_state >> 32) % files[run->file].pages &
                ~(CHUNK_PAGES - 1ull);
    left = files[run->file].pages - run->page;
    run->pages = left < CHUNK_PAGES ? left : CHUNK_PAGES;
    return true;
}

void files_forget(const struct run *run)
{
    posix_fadvise(files[run->file].fd, run->page * PAGE_BYTES,
                  run->pages * PAGE_BYTES, POSIX_FADV_DONTNEED);
}

uint64_t files_verify_run(const struct run *run)
{
    return verify_chunk(&files[run->file], run->page) * PAGE_BYTES;
}

/* A random run of pages gets its next version, through the page cache. */
uint64_t files_write_some(void)
{
    struct run run;
    struct file *file;
    uint64_t page, count;

    if (!files_pick(&run) || !files[run.file].writable) {
        return 0;
    }
    file = &files[run.file];
    page = run.page;
    count = run.pages;
    for (uint64_t i = 0; i < count; i++) {
        file->versions[page + i]++;
        pattern_fill(chunk + i * PAGE_WORDS, start_of(file, page + i));
    }
    if (pwrite(file->fd, chunk, count * PAGE_BYTES, page * PAGE_BYTES) !=
        (ssize_t)(count * PAGE_BYTES)) {
        note_error("%s/f%05llu: write: %s", disks[file->disk],
                   (unsigned long long)file->object, strerror(errno));
    }
    file->dirty = true;
    return count * PAGE_BYTES;
}

/* Start writing everything back, and wait for one file. */
void files_flush_some(void)
{
    static unsigned turn;
    struct file *file;

    for (unsigned i = 0; i < active_count; i++) {
        if (files[i].dirty) {
            sync_file_range(files[i].fd, 0, 0, SYNC_FILE_RANGE_WRITE);
        }
    }
    if (!active_count) {
        return;
    }
    file = &files[turn++ % active_count];
    if (atomic_exchange(&file->dirty, false) && fdatasync(file->fd)) {
        note_error("%s/f%05llu: fdatasync: %s", disks[file->disk],
                   (unsigned long long)file->object, strerror(errno));
    }
}

void files_flush_all(void)
{
    for (unsigned i = 0; i < file_count; i++) {
        if (files[i].writable && fsync(files[i].fd)) {
            note_error("%s/f%05llu: fsync: %s", disks[files[i].disk],
                       (unsigned long long)files[i].object, strerror(errno));
        }
    }
}

void files_unmount(void)
{
    char where[64];

    for (unsigned i = 0; i < file_count; i++) {
        close(files[i].fd);
    }
    for (unsigned i = 0; i < disk_count; i++) {
        snprintf(where, sizeof(where), "/data/%s", disks[i]);
        umount2(where, 0);
    }
}
