/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What busybox cannot do in the guest the lister is tested in.
 *
 *   helper hold FILE...      maps, touches and locks each, until killed
 *   helper open FILE...      keeps them open, until killed
 *   helper read FILE FROM BYTES    reads a part into the cache
 *   helper scatter FILE N    reads every Nth page, without read-ahead
 *   helper write FILE RATE   overwrites random pages, RATE a second
 *   helper age DIR FILES KIB ROUNDS    creates, deletes, rewrites and reads
 *                            parts of files at random, short of memory
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_it(const char *path, int flags)
{
    int fd = open(path, flags);

    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

static void hold(const char *path)
{
    int fd = open_it(path, O_RDONLY);
    struct stat st;
    char *p;

    fstat(fd, &st);
    p = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || mlock(p, st.st_size)) {
        perror("mlock");
        exit(1);
    }
}

static void part(const char *path, long from, long bytes)
{
    int fd = open_it(path, O_RDONLY);
    static char buf[65536];

    while (bytes > 0) {
        ssize_t got = pread(fd, buf, bytes < 65536 ? bytes : 65536, from);

        if (got <= 0) {
            break;
        }
        from += got;
        bytes -= got;
    }
}

static void scatter(const char *path, long every)
{
    int fd = open_it(path, O_RDONLY);
    static char buf[4096];
    off_t at = 0;

    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    while (pread(fd, buf, 4096, at) > 0) {
        at += 4096 * every;
    }
}

static void overwrite(const char *path, long rate)
{
    int fd = open_it(path, O_RDWR);
    static char buf[4096];
    struct stat st;

    fstat(fd, &st);
    for (unsigned long n = 1;; n++) {
        memset(buf, n, sizeof(buf));
        if (pwrite(fd, buf, 4096, random() % (st.st_size / 4096) * 4096) < 0) {
            exit(1);
        }
        if (n % 64 == 0) {
            fsync(fd);
        }
        usleep(1000000 / rate);
    }
}

static const char *name(const char *directory, long number)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%ld", directory, number);
    return path;
}

/* A new file, written in random order, so that its blocks are scattered */
static void create(const char *path, long pages)
{
    static char block[4096];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    if (fd < 0) {
        perror(path);
        exit(1);
    }
    for (long i = 0; i < pages; i++) {
        for (size_t n = 0; n < sizeof(block); n += sizeof(long)) {
            *(long *)(block + n) = random();
        }
        if (pwrite(fd, block, 4096, i * 4096) != 4096) {
            break;
        }
        if (random() % 16 == 0) {
            fdatasync(fd);
        }
    }
    close(fd);
}

/* Memory of processes that come and go between the pages of files */
static void press(long pages)
{
    char *p = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    for (long i = 0; p != MAP_FAILED && i < pages; i++) {
        p[(random() % pages) * 4096] = 1;
    }
    if (p != MAP_FAILED) {
        munmap(p, pages * 4096);
    }
}

/* As a machine in use: files and pages of all ages lie side by side. */
static void age(const char *directory, long files, long kib, long rounds)
{
    static char block[8192];
    long pages = kib / 4;

    srandom(1);
    for (long i = 0; i < files; i++) {
        create(name(directory, i), 1 + random() % (2 * pages));
    }
    sync();
    for (long n = 0; n < rounds * files; n++) {
        long number = random() % files;
        const char *path = name(directory, number);
        int fd = open_it(path, O_RDWR);
        struct stat st;

        fstat(fd, &st);
        posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
        for (int i = 0; i < 16 && st.st_size; i++) {
            off_t at = random() % (st.st_size / 4096) * 4096;

            if (pread(fd, block, 4096 + 4096 * (random() % 2), at) < 4096) {
                break;
            }
            if (i % 8 == 7 && pwrite(fd, block, 4096, at) != 4096) {
                break;
            }
        }
        close(fd);
        if (n % 8 == 0) {
            unlink(path);
            create(path, 1 + random() % (2 * pages));
        }
        if (n % 32 == 0) {
            press(4096);
        }
    }
    sync();
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";

    if (!strcmp(what, "hold") || !strcmp(what, "open")) {
        for (int i = 2; i < argc; i++) {
            if (*what == 'h') {
                hold(argv[i]);
            } else {
                open_it(argv[i], O_RDONLY);
            }
        }
        puts("held");
        fflush(stdout);
        pause();
    } else if (!strcmp(what, "read") && argc == 5) {
        part(argv[2], atol(argv[3]), atol(argv[4]));
    } else if (!strcmp(what, "scatter") && argc == 4) {
        scatter(argv[2], atol(argv[3]));
    } else if (!strcmp(what, "write") && argc == 4) {
        overwrite(argv[2], atol(argv[3]));
    } else if (!strcmp(what, "age") && argc == 6) {
        age(argv[2], atol(argv[3]), atol(argv[4]), atol(argv[5]));
    } else {
        return 2;
    }
    return 0;
}
