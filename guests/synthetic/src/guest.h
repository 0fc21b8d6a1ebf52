/* SPDX-License-Identifier: Apache-2.0
 *
 * The guest program of demo, benchmarks and tests.  It is the init process
 * of a guest that has nothing else in it.
 *
 * Kernel command line (all optional):
 *   workload.mode=M       started once memory is filled (default idle)
 *   workload.cache=MiB    file data read into the page cache (default: all)
 *   workload.anon=MiB     anonymous memory filled with the pattern (0)
 *   workload.wss=MiB      part of it that anon-writer dirties (default: all)
 *   workload.rate=KB/s    writers' rate (default 0: as fast as possible)
 *   workload.readrate=KB/s  verification rate, likewise (0)
 *   workload.seed=N       pattern of anonymous memory (1)
 *   workload.incompressible=1  anonymous memory that nothing makes smaller
 *                         (0: it compresses as a real guest's)
 *   workload.disks=N      data disks to wait for (1)
 *   workload.channel=DEV  e.g. ttyS1; default: the virtio-serial port called
 *                         "workload", else ttyS1, else ttyS0
 * Modes:
 *   idle               sleeps
 *   read               reads and verifies the files, over and over
 *   pagecache-writer   rewrites file pages at the rate, verifies meanwhile
 *   anon-writer        rewrites anonymous pages, verifies meanwhile
 *   mixed              both writers in turn, together at the rate
 *   small-files        creates, deletes, reads and appends to many small
 *                      files, as PostMark does; the rate is of both reading
 *                      and writing
 *   recycle            gives pages of the page cache to anonymous memory and
 *                      to zeros, and back; the rate is of what is given
 *
 * Channel: one command a line in, one JSON object a line out.
 *   ping                           {"type":"reply","command":"ping",...}
 *   start MODE [rate=] [readrate=] [wss=]    units as above
 *   stop                           replied when the loop stands still
 *   verify [cache] [disk] [anon]   all three without words; cache: what is
 *                                  cached now; disk: every file, after
 *                                  writing back and dropping caches
 *   drop                           write back and drop caches
 *   io seq|random MS               reads the first disk past the page cache
 *                                  (O_DIRECT), 128 KiB in sequence or 4 KiB
 *                                  at random: bytes, requests, us
 *   stat                           /proc/meminfo, in KiB
 *   beat MS                        a {"type":"beat"} line every MS (0: off),
 *                                  whose arrival times show the pause that
 *                                  the guest's own clock does not
 *   lister hang|kill|go|break      stops the page-cache lister, ends it, both
 *                                  until it may go; break ends it in the
 *                                  middle of its next answer
 *   poweroff
 * A reply has "ok"; when false, "message" says why.  Unasked come one
 * {"type":"ready"} when memory is filled and one {"type":"report"} a second:
 *   seq, mode, passes, verified (bytes), errors, written (bytes), mono_ms,
 *   gap_ms (longest time a 5 ms real-time timer was late since the last
 *   report), max_gap_ms, and "error" (the first one ever, it stays).
 * {"type":"fatal","message":...} precedes a power-off.
 */
#ifndef GUEST_H
#define GUEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MIB (UINT64_C(1) << 20)
#define MAX_DISKS 8

enum mode {
    IDLE, READ, PAGECACHE_WRITER, ANON_WRITER, MIXED, SMALL_FILES, RECYCLE,
    MODES
};

struct config {
    enum mode mode;
    uint64_t cache;         /* bytes */
    uint64_t anon;          /* bytes */
    uint64_t wss;           /* bytes */
    uint64_t rate;          /* bytes a second, 0: no limit */
    uint64_t readrate;      /* bytes a second, 0: no limit */
    uint64_t seed;
    bool incompressible;
    unsigned disks;
    char channel[32];
};

struct counters {
    _Atomic uint64_t passes, verified, errors, written;
    _Atomic uint64_t gap_us, max_gap_us;
    char error[256];        /* written once, before errors becomes 1 */
};

extern struct config config;
extern struct counters counters;

/* main.c */
uint64_t now_us(void);
void power_off(void) __attribute__((noreturn));
void fatal(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));
void note_error(const char *format, ...)
    __attribute__((format(printf, 1, 2)));

/* boot.c */
void boot_prepare(void);
void boot_modules(void);
void boot_config(void);
enum mode mode_by_name(const char *name);       /* MODES if unknown */
const char *mode_name(enum mode mode);
bool size_option(const char *word, struct config *into);

/* files.c: the disks' files; bytes handled is returned */
void files_find(void);
uint64_t files_total(void);
uint64_t files_active(void);                    /* bytes that are cached */
uint64_t files_count(void);
unsigned files_disks(void);
const char *files_disk_name(unsigned disk);
uint64_t files_verify_some(uint64_t bytes);     /* of the active ones */
uint64_t files_verify_all(bool active_only);
uint64_t files_resident(void);
uint64_t files_write_some(void);
void files_flush_some(void);
void files_flush_all(void);
void files_unmount(void);

/* Pages of an active file that lie one after the other */
struct run {
    unsigned file;
    uint64_t page, pages;
};
bool files_pick(struct run *run);               /* at random; false: none */
void files_forget(const struct run *run);       /* not cached any more */
uint64_t files_verify_run(const struct run *run);

/* anon.c */
void anon_fill(void);
uint64_t anon_verify_some(uint64_t bytes);
uint64_t anon_verify_all(void);
uint64_t anon_write_some(void);

/* small.c: small files on the first disk */
uint64_t small_some(uint64_t *read);            /* bytes written */
uint64_t small_verify_all(void);
void small_flush(void);

/* recycle.c */
uint64_t recycle_some(uint64_t *read);          /* bytes written */
uint64_t recycle_verify_all(void);

/* direct.c */
bool direct_read(bool random, uint64_t us, uint64_t *bytes,
                 uint64_t *requests, uint64_t *took_us);

/* channel.c */
void channel_open(void);
void channel_line(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void channel_serve(void) __attribute__((noreturn));
extern _Atomic unsigned beat_ms;

/* lister.c: the page-cache lister, in images that have it */
void lister_start(void);
const char *lister_command(const char *word);   /* NULL, or what is wrong */

/* worker.c */
void worker_start(void);
bool worker_order(const char *line);            /* false: busy */

#endif
