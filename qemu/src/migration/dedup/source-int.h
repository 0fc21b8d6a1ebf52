/*
 * Source: what its parts share
 *
 *   source-control.c  arming, the beginning and the end, figures
 *   source-records.c  what goes out: set-up, extents, records
 *   source-answers.c  what comes back
 *   source-resolve.c  where the bytes of shared disks are
 *   source.c          the course of a migration
 *   source-postcopy.c its course in post-copy
 *   source-hints.c    hints for the next migration
 *   source-redirtied.c  pages that wait for the next round
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_SOURCE_INT_H
#define MIGRATION_DEDUP_SOURCE_INT_H

#include "qemu/thread.h"
#include "qemu/timer.h"
#include "compress.h"
#include "dedup-int.h"
#include "deferred.h"
#include "outstanding.h"
#include "pace.h"
#include "redirtied.h"

#define HOLD_MAX_US     (5000 * 1000)   /* of the switch-over, or the end */

typedef struct SourceDisk {
    BlockBackend *blk;                  /* referenced */
    char *path;
    DedupCopy copy;
    int64_t length;
    DedupResolver *resolver;            /* shared disks */
    DedupExtents extents;
} SourceDisk;


typedef struct DedupSource {
    /* Under the BQL */
    bool ever;
    DedupCopy copy;
    DedupDiskList *exceptions;
    bool resend;
    DedupLimits limits;
    bool records;
    bool lazy_wanted;
    bool put_off_wanted;
    NotifierWithReturn notifier;

    /* Read by anyone, atomically */
    DedupSourceState state;
    char *reason;                       /* under @lock */

    /* Migration thread, from prepare() to release() */
    bool prepared;
    bool running;                       /* HELLO came, not finished yet */
    bool idle;                          /* the last scan found nothing */
    int64_t started_us;                 /* the magic PING went out */
    uint8_t key[DEDUP_KEY_LEN];
    GPtrArray *disks;
    unsigned leaves;                    /* of all disks' extents */
    uint8_t disk_of_slot[DEDUP_MAX_SLOTS + 1];  /* index + 1 */
    DedupOutstanding out;
    DedupDeferred deferred;
    DedupPace pace;
    bool put_off;                       /* pages written to again, as yet */
    bool put_off_last;                  /* the last page that was handled */
    bool finished;                      /* a test puts off nevertheless */
    DedupRedirtied redirtied;
    int64_t pass_us;                    /* QEMU's loop began anew, */
    uint64_t pass_bytes;                /* when so much had been sent */
    unsigned pass_ram;
    uint64_t pass_page;
    bool pass_done;
    QEMUFile *f;
    DedupRecord batch[DEDUP_WIRE_MAX_BATCH];
    unsigned nbatch;
    uint32_t epoch_sent;                /* the last EPOCH, 0: none yet */
    uint32_t unsynced;                  /* epoch of the newest content since
                                           multifd's channels were
                                           synchronised, 0: none */
    int64_t begun_us;                   /* this iteration */
    int64_t last_exact_us;
    bool closing;                       /* holding the switch-over */
    uint64_t later;                     /* bits set in DedupRam.later */
    unsigned scan_ram;                  /* hints looked at for resolvers */
    uint64_t scan_page;
    bool scanned;
    GArray *taking;                     /* Answer, taken out of @inbox */
    unsigned taken;                     /* of @taking */
    bool violated;                      /* the destination broke a rule */
    int64_t hold_since_us;
    bool lazy;                          /* the destination can do it, too */
    GByteArray *hint_disks;             /* HINT_DISKS, until it is sent */
    uint8_t hint_disk_of_slot[DEDUP_MAX_SLOTS + 1];     /* index + 1 */
    bool hints_due;                     /* it takes hints, not all are sent */
    int64_t hints_since_us;             /* they go since then, 0: not yet */
    unsigned hints_ram;                 /* the next one */
    uint64_t hints_page;
    bool handed_over;                   /* the next event is its beginning */

    /*
     * Post-copy has begun, and records go on.  From here on @out and the
     * tables of pages belong to whoever holds the dirty bitmap's mutex: with
     * postcopy-preempt, the return-path thread sends the pages requested.
     */
    bool postcopy;
    int64_t postcopy_us;                /* its beginning */
    bool requested;                     /* atomic: a page, lately */

    /* Between the return-path thread and the migration thread */
    QemuMutex lock;
    QemuCond wake;
    bool news;                          /* something came: wait no more */
    GArray *inbox;                      /* Answer */
    uint64_t answered;                  /* ids, each once at most */
    bool listening, hello, pong;
    int64_t hello_us;                   /* it came */
    unsigned peer_version;
    uint32_t peer_features;
    uint64_t peer_backlog, peer_rate;

    /* Figures; peer and zero pages are QEMU's own until the end */
    DedupSourceInfo fig;
} DedupSource;

extern DedupSource src;

static inline int64_t now_us(void)
{
    return qemu_clock_get_ns(QEMU_CLOCK_REALTIME) / 1000;
}

/* source.c; migration thread, with the dirty bitmap's mutex held */
bool source_first_pass(QEMUFile *f);            /* true: more to do, and room */
uint64_t source_unsettled(void);
void source_resend_idle(void);

/* source-resolve.c; migration thread */
void source_kick_resolvers(void);
bool source_halt_resolvers(void);
bool source_resolvers_busy(void);
void source_scan_hints(void);

/* source-postcopy.c */
bool source_postcopy_iterate(QEMUFile *f);
bool source_postcopy_hold(int64_t now);
bool source_pass_due(void);

/* source-hints.c; migration thread */
void source_hints_prepare(void);                /* BQL, no such thread yet */
/* The guest is about to stop here: send hints first.  True: not all are. */
bool source_hold_for_hints(void);
uint64_t source_hints_pending(void);            /* bytes; not 0: they go now */
bool source_send_hints(QEMUFile *f);            /* true: more to send */
/* source-redirtied.c; migration thread, with the dirty bitmap's mutex held */
void source_redirtied_round(void);              /* a section begins */
/* True: the page, just taken out of the bitmap, waits for the next round */
bool source_put_off(RAMBlock *rb, unsigned long page);
void source_redirtied_finish(void);             /* make dirty what waits */
/* Likewise, with no lock held; QEMU's loop begins, or it has synchronised */
void source_redirtied_pass(bool synchronised);
/* The scan is through: wait if need be; time that the link idled in this pass */
int64_t source_redirtied_pause(void);

/* source-control.c */
void source_set_state(DedupSourceState state);
/* Why it is not, or no longer, a migration with records; the first counts */
void G_GNUC_PRINTF(1, 2) source_set_reason(const char *fmt, ...);

/* source-records.c; migration thread */
void source_send_element(QEMUFile *f, unsigned type, const uint8_t *buf,
                         size_t len);
bool source_send_setup(QEMUFile *f, bool compress); /* false: too large */
void source_flush_records(QEMUFile *f);
bool source_send_extents(QEMUFile *f);          /* true: more to send */
uint64_t source_window(void);                   /* records, at most */
bool source_window_full(void);
void source_take_later(uint64_t n);             /* some of so many */
void source_take_all_later(void);
bool source_save_page(RAMBlock *rb, unsigned long page);

/* source-answers.c */
void source_wake(void);                         /* any thread */
void source_take_answers(void);                 /* migration thread */
bool source_has_answers(void);                  /* likewise */
uint64_t source_due(void);                      /* records, see pace.h */
void source_answers_init(void);

#endif
