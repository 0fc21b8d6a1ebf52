/*
 * Content index: what its parts share
 *
 *   index.c          commands, the thread, figures
 *   index-memory.c   the guest's pages
 *   index-disks.c    reading the disks
 *   content-table.c  pages by what they hold
 *
 * All but the reads run in the thread, unless it says otherwise.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_INDEX_INT_H
#define MIGRATION_DEDUP_INDEX_INT_H

#include "qemu/lockable.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "block/block.h"
#include "content-table.h"
#include "dedup-int.h"

typedef struct IndexDisk {
    BlockBackend *blk;          /* not referenced: to be found among all */
    char *device;
    unsigned slot;
    uint64_t length;            /* whole blocks of 4 KiB */
} IndexDisk;

typedef struct IndexRam {
    DedupRam *dr;               /* it may be gone: see ram_there() */
    uint64_t first;             /* number of its first page */
} IndexRam;

typedef struct Index {
    GArray *disks;              /* IndexDisk */
    GArray *rams;               /* IndexRam */
    uint64_t pages;             /* of all @rams */
    uint64_t rate;
    int64_t due_ns;             /* of the next read */
    uint8_t key[DEDUP_KEY_LEN];
    DedupContentTable *table;
    uint64_t found, changed;

    /* The read under way, or the block looked up */
    IndexDisk *disk;
    BlockBackend *blk;
    BdrvChild *root;
    uint64_t offset, bytes;
    uint8_t *buf;
    const uint8_t *block;
    bool zero;
    int ret;
    QemuEvent done;
} Index;

/* Figures, under @lock but for @stop */
typedef struct DedupIndexNow {
    QemuMutex lock;
    bool ever, busy;
    DedupIndexInfo fig;         /* without its reason */
    char *reason;
    bool stop;
} DedupIndexNow;

extern DedupIndexNow index_now;

static inline bool index_stopped(void)
{
    return qatomic_read(&index_now.stop);
}

/* Why it fell short; the first counts.  Takes over @reason. */
void index_set_reason(char *reason);
/* Or until it is to stop */
void index_sleep_until(int64_t ns);
uint64_t index_hash(Index *x, const void *page);

/* index-memory.c; false: there is not enough memory */
bool index_scan_memory(Index *x);
/* Those of @x->bytes in @x->buf, from @x->offset on, which moves on */
void index_look_up(Index *x);
/* BQL */
void index_find_memory(Index *x);

/* index-disks.c; false: one of them could not be read to its end */
bool index_read_disks(Index *x);
/* BQL; all if not @named */
bool index_find_disks(Index *x, bool named, strList *devices, bool cached,
                      Error **errp);

#endif
