/*
 * As much of QEMU as the tested files need, to compile them alone
 *
 * The Makefile makes a header of one line for each QEMU header they include;
 * all lead here.  Types have only the members that are used, functions that
 * are declared and not defined here belong to the tests.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef SHIM_H
#define SHIM_H

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <glib.h>

#define unlikely(x)     __builtin_expect(!!(x), 0)
#define cpu_relax()     ((void)0)
#define ROUND_DOWN(n, d)        ((n) / (d) * (d))
#define ROUND_UP(n, d)          ROUND_DOWN((n) + (d) - 1, d)
#define DIV_ROUND_UP(n, d)      (((n) + (d) - 1) / (d))
#define QEMU_IS_ALIGNED(n, m)   ((n) % (m) == 0)
#define is_power_of_2(n)        ((n) && !((n) & ((n) - 1)))

/* qemu/atomic.h */
#define qatomic_read(p)             __atomic_load_n(p, __ATOMIC_RELAXED)
#define qatomic_set(p, v)           __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define qatomic_load_acquire(p)     __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define qatomic_store_release(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define qatomic_inc(p)  ((void)__atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST))
#define qatomic_dec(p)  ((void)__atomic_fetch_sub(p, 1, __ATOMIC_SEQ_CST))
#define qatomic_fetch_inc(p)        __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST)
#define qatomic_cmpxchg(p, old, new)                                    \
    ({                                                                  \
        __typeof__(*(p)) old_ = (old);                                  \
        __atomic_compare_exchange_n(p, &old_, new, false,               \
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
        old_;                                                           \
    })
#ifdef __SANITIZE_THREAD__
/* ThreadSanitizer knows no fences; a read-modify-write orders as much */
static int shim_fence __attribute__((unused));
#define smp_mb()                    qatomic_inc(&shim_fence)
#else
#define smp_mb()                    __atomic_thread_fence(__ATOMIC_SEQ_CST)
#endif
#define smp_mb__after_rmw()         smp_mb()

/* qemu/stats64.h */
typedef struct Stat64 {
    uint64_t value;
} Stat64;

static inline void stat64_init(Stat64 *s, uint64_t v)
{
    s->value = v;
}

static inline uint64_t stat64_get(const Stat64 *s)
{
    return qatomic_read(&s->value);
}

static inline void stat64_add(Stat64 *s, uint64_t v)
{
    __atomic_fetch_add(&s->value, v, __ATOMIC_SEQ_CST);
}

/* qemu/bitmap.h */
#define BIT_WORD(nr)    ((nr) / 64)
#define BIT_MASK(nr)    (1ul << ((nr) % 64))

static inline void set_bit(long nr, unsigned long *map)
{
    map[BIT_WORD(nr)] |= BIT_MASK(nr);
}

static inline bool test_bit(long nr, const unsigned long *map)
{
    return map[BIT_WORD(nr)] & BIT_MASK(nr);
}

static inline bool test_and_clear_bit(long nr, unsigned long *map)
{
    bool was = test_bit(nr, map);

    map[BIT_WORD(nr)] &= ~BIT_MASK(nr);
    return was;
}

static inline void clear_bit(long nr, unsigned long *map)
{
    map[BIT_WORD(nr)] &= ~BIT_MASK(nr);
}

static inline unsigned long find_next_bit(const unsigned long *map,
                                          unsigned long bits,
                                          unsigned long at)
{
    while (at < bits && !test_bit(at, map)) {
        at++;
    }
    return at;
}

static inline unsigned long find_next_zero_bit(const unsigned long *map,
                                               unsigned long bits,
                                               unsigned long at)
{
    while (at < bits && test_bit(at, map)) {
        at++;
    }
    return at;
}

static inline unsigned long *bitmap_new(long bits)
{
    return g_new0(unsigned long, BIT_WORD(bits + 63));
}

#define bitmap_from_le(to, from, bits)                                  \
    memcpy(to, from, BIT_WORD((bits) + 63) * sizeof(long))

/* qemu/thread.h, qemu/lockable.h, qemu/timer.h */
typedef pthread_mutex_t QemuMutex;
typedef pthread_cond_t QemuCond;
typedef pthread_t QemuThread;
#define QEMU_THREAD_JOINABLE        0
#define QEMU_THREAD_DETACHED        1
#define rcu_register_thread()       ((void)0)
#define rcu_unregister_thread()     ((void)0)
#define qemu_mutex_init(m)          pthread_mutex_init(m, NULL)
#define qemu_mutex_destroy(m)       pthread_mutex_destroy(m)
#define qemu_mutex_lock(m)          pthread_mutex_lock(m)
#define qemu_mutex_unlock(m)        pthread_mutex_unlock(m)
#define qemu_cond_init(c)           pthread_cond_init(c, NULL)
#define qemu_cond_destroy(c)        pthread_cond_destroy(c)
#define qemu_cond_signal(c)         pthread_cond_signal(c)
#define qemu_cond_broadcast(c)      pthread_cond_broadcast(c)
#define qemu_cond_wait(c, m)        pthread_cond_wait(c, m)
#define qemu_thread_create(t, name, fn, arg, mode)                      \
    do {                                                                \
        pthread_create(t, NULL, fn, arg);                               \
        if (mode) {                                                     \
            pthread_detach(*(t));                                       \
        }                                                               \
    } while (0)
#define qemu_thread_join(t)         pthread_join(*(t), NULL)

static inline void shim_unlock(QemuMutex **m)
{
    if (*m) {
        pthread_mutex_unlock(*m);
    }
}
#define SHIM_LOCK(m)    (pthread_mutex_lock(m), (m))
#define QEMU_LOCK_GUARD(m)                                              \
    QemuMutex *guard_ __attribute__((cleanup(shim_unlock), unused)) =   \
        SHIM_LOCK(m)
#define WITH_QEMU_LOCK_GUARD(m)                                         \
    for (QemuMutex *with_ __attribute__((cleanup(shim_unlock))) =       \
         SHIM_LOCK(m); with_; shim_unlock(&with_), with_ = NULL)

static inline int64_t get_clock(void)
{
    return g_get_monotonic_time() * 1000;
}

/* qemu/queue.h, qemu/rcu.h */
#define QSIMPLEQ_HEAD(name, type)                                       \
    struct name {                                                       \
        struct type *first, **last;                                     \
    }
#define QSIMPLEQ_ENTRY(type)                                            \
    struct {                                                            \
        struct type *next;                                              \
    }
#define QSIMPLEQ_INIT(q)    ((q)->first = NULL, (q)->last = &(q)->first)
#define QSIMPLEQ_EMPTY(q)   (!(q)->first)
#define QSIMPLEQ_FIRST(q)   ((q)->first)
#define QSIMPLEQ_INSERT_HEAD(q, e, field)                               \
    do {                                                                \
        (e)->field.next = (q)->first;                                   \
        if (!(q)->first) {                                              \
            (q)->last = &(e)->field.next;                               \
        }                                                               \
        (q)->first = (e);                                               \
    } while (0)
#define QSIMPLEQ_INSERT_TAIL(q, e, field)                               \
    do {                                                                \
        (e)->field.next = NULL;                                         \
        *(q)->last = (e);                                               \
        (q)->last = &(e)->field.next;                                   \
    } while (0)
#define QSIMPLEQ_REMOVE_HEAD(q, field)                                  \
    do {                                                                \
        (q)->first = (q)->first->field.next;                            \
        if (!(q)->first) {                                              \
            (q)->last = &(q)->first;                                    \
        }                                                               \
    } while (0)
#define QLIST_HEAD(name, type)                                          \
    struct name {                                                       \
        struct type *first;                                             \
    }
#define QLIST_HEAD_INITIALIZER(head)    { NULL }
#define QLIST_ENTRY(type)                                               \
    struct {                                                            \
        struct type *next, **place;                                     \
    }
#define QLIST_FIRST(q)              ((q)->first)
#define QLIST_NEXT(e, field)        ((e)->field.next)
#define QLIST_FOREACH(e, q, field)                                      \
    for ((e) = (q)->first; (e); (e) = (e)->field.next)
#define QLIST_FOREACH_SAFE(e, q, field, after)                          \
    for ((e) = (q)->first; (e) && ((after) = (e)->field.next, 1);       \
         (e) = (after))
#define QLIST_INSERT_HEAD(q, e, field)                                  \
    do {                                                                \
        (e)->field.next = (q)->first;                                   \
        (e)->field.place = &(q)->first;                                 \
        if ((q)->first) {                                               \
            (q)->first->field.place = &(e)->field.next;                 \
        }                                                               \
        (q)->first = (e);                                               \
    } while (0)
#define QLIST_REMOVE(e, field)                                          \
    do {                                                                \
        *(e)->field.place = (e)->field.next;                            \
        if ((e)->field.next) {                                          \
            (e)->field.next->field.place = (e)->field.place;            \
        }                                                               \
    } while (0)
#define QTAILQ_ENTRY(type)          struct type *
struct rcu_head {
    char unused;
};
#define WITH_RCU_READ_LOCK_GUARD()
#define RCU_READ_LOCK_GUARD()       ((void)0)

/* block/aio.h, qemu/coroutine.h */
static bool shim_in_coroutine __attribute__((unused));
static unsigned shim_yields __attribute__((unused));
#define qemu_in_coroutine()             shim_in_coroutine
#define qemu_coroutine_self()           NULL
#define qemu_coroutine_yield()          ((void)shim_yields++)
#define qemu_get_current_aio_context()  NULL
#define aio_co_schedule(ctx, co)        ((void)0)
#define coroutine_fn
typedef struct AioContext AioContext;
typedef struct BlockDriverState BlockDriverState;
typedef struct IOThread IOThread;
typedef struct QEMUTimer QEMUTimer;

/* Types */
typedef uint64_t hwaddr, ram_addr_t;
typedef struct BlockBackend BlockBackend;
typedef struct DeviceState DeviceState;
typedef struct QEMUIOVector QEMUIOVector;
typedef struct QEMUFile QEMUFile;
typedef struct MigrationState MigrationState;
typedef struct Error Error;
typedef enum MigrationStatus {
    MIGRATION_STATUS_NONE,
    MIGRATION_STATUS_ACTIVE,
} MigrationStatus;
typedef struct MigrationIncomingState {
    MigrationStatus state;
    QEMUFile *from_src_file, *to_src_file;
} MigrationIncomingState;
typedef struct RAMBlock {
    char idstr[256];
    uint8_t *host;
    ram_addr_t used_length, max_length;
    struct DedupRam *dedup;
} RAMBlock;

/* exec/memory.h, exec/address-spaces.h, qemu/main-loop.h, qapi/error.h */
typedef struct MemoryRegion {
    RAMBlock *ram_block;
    unsigned refs;
} MemoryRegion;
typedef struct MemoryRegionSection {
    MemoryRegion *mr;
    uint64_t size;
    hwaddr offset_within_region, offset_within_address_space;
} MemoryRegionSection;
MemoryRegionSection memory_region_find(MemoryRegion *mr, hwaddr at,
                                       uint64_t size);
void memory_region_unref(MemoryRegion *mr);
bool memory_region_is_ram(MemoryRegion *mr);
#define memory_region_is_rom(mr)        false
#define get_system_memory()             NULL
#define int128_get64(v)                 (v)
void bql_lock(void);
void bql_unlock(void);
void error_setg(Error **errp, const char *fmt, ...) G_GNUC_PRINTF(2, 3);

/* qapi/dedup.json */
typedef enum DedupCopy {
    DEDUP_COPY_SHARED,
    DEDUP_COPY_OWN,
    DEDUP_COPY__MAX,
} DedupCopy;
typedef struct DedupDiskList DedupDiskList;
typedef enum DedupMapState {
    DEDUP_MAP_STATE_NONE,
    DEDUP_MAP_STATE_LOADING,
    DEDUP_MAP_STATE_LOADED,
    DEDUP_MAP_STATE_FAILED,
} DedupMapState;
typedef struct DedupHintsInfo {
    DedupMapState map_state;
    uint64_t map_pages, map_kept, map_skipped;
    char *map_error;
} DedupHintsInfo;
typedef struct DedupIndexInfo DedupIndexInfo;
typedef struct DedupSourceInfo DedupSourceInfo;
typedef struct DedupRefusedDiskList DedupRefusedDiskList;
typedef struct DedupIncomingInfo {
    bool active, has_refused;
    DedupRefusedDiskList *refused;
    char *hint_error;
    uint64_t hint_pages;
    uint64_t record_pages, fetched_pages, superseded_pages, lazy_pages,
        hurried_reads, nack_digest, nack_io, reads, bytes_read, read_ns, max_read_ns, backlog,
        compressed_pages, compressed_bytes, compression_ns;
    uint32_t compression_threads;
} DedupIncomingInfo;

#define QAPI_CLONE(type, list)                      (list)
#define qapi_free_DedupRefusedDiskList(list)        ((void)(list))
#define qapi_free_DedupIncomingInfo(info)                               \
    do {                                                                \
        g_free((info)->hint_error);                                     \
        g_free(info);                                                   \
    } while (0)
#define qapi_event_send_x_dedup_incoming_done(info) ((void)(info))

/* Migration */
#define qemu_target_page_size()                     4096
#define migrate_colo()                              false
#define migrate_mapped_ram()                        false
bool migrate_multifd(void);
#define migrate_postcopy_ram()                      true
#define RAM_CHANNEL_PRECOPY                         0
#define qemu_ram_pagesize(rb)                       4096
#define migrate_ram_is_ignored(rb)                  false
#define trace_dedup_map_loaded(pages, skipped, err) ((void)(err))
#define trace_dedup_incoming_stop(fetched, live)    ((void)0)

MigrationIncomingState *migration_incoming_get_current(void);
RAMBlock *qemu_ram_block_by_name(const char *name);
void ramblock_recv_bitmap_set_offset(RAMBlock *rb, uint64_t offset);
bool ramblock_recv_bitmap_test_byte_offset(RAMBlock *rb, uint64_t offset);
bool ramblock_recv_bitmap_test(RAMBlock *rb, void *host);
int postcopy_place_page(MigrationIncomingState *mis, void *host, void *from,
                        RAMBlock *rb);
unsigned qemu_get_be16(QEMUFile *f);
unsigned qemu_get_be32(QEMUFile *f);
size_t qemu_get_buffer(QEMUFile *f, uint8_t *buf, size_t size);
int qemu_file_get_error(QEMUFile *f);
void qemu_file_set_error(QEMUFile *f, int error);
int qemu_file_shutdown(QEMUFile *f);
void error_report(const char *fmt, ...) G_GNUC_PRINTF(1, 2);

#endif
