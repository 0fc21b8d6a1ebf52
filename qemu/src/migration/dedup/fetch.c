/*
 * The destination's reads
 *
 * Records wait in an inbox.  When the generation before is used up, all that
 * came in meanwhile is sorted by place and becomes the next one (papers.md
 * P1.4, P2.3): an elevator that neither starves a record nor sorts twice.
 * Neighbours are read together, with the gaps between them if those are
 * short, many reads at once.  Bytes go to a bounce buffer, the digest is
 * taken there, and only then dedup_incoming_place() puts them into memory.
 *
 * Threads: records and extents come from the migration coroutine (or thread);
 * reads and digests run as coroutines in an IOThread of our own, so that
 * neither the main loop nor the migration coroutine waits for storage.
 * Nodes are attached and detached in bottom halves of the main loop, because
 * the graph must not change within the migration coroutine.
 *
 * What is read: for a disk both sides share, the node below the format at the
 * host offset that the source resolved (the format's own metadata is stale
 * until the switch-over); for an own copy, the format node at the guest
 * offset.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "block/block_int.h"
#include "qapi/error.h"
#include "qemu/coroutine.h"
#include "qemu/error-report.h"
#include "qemu/lockable.h"
#include "qemu/main-loop.h"
#include "qemu/memalign.h"
#include "qemu/stats64.h"
#include "system/block-backend.h"
#include "system/iothread.h"
#include "dedup-int.h"
#include "trace.h"

#define READ_MAX        (1024 * 1024)
#define GAP_MAX         (64 * 1024)
#define DEPTH           16
#define INFLIGHT_MIN    (256 * 1024)
#define CHAIN_MAX       256
#define RATE_NS         (100 * SCALE_MS)

typedef struct FetchDisk {
    char *path;
    DedupCopy copy;
    unsigned slot;
    DedupExtents extents;               /* under the lock */
    GPtrArray *targets;                 /* BlockBackend or NULL, see below */
} FetchDisk;

struct DedupFetch {
    uint8_t key[DEDUP_KEY_LEN];
    GPtrArray *disks;                   /* FetchDisk, complete at start() */
    IOThread *iothread;
    AioContext *ctx;

    QemuMutex lock;
    GArray *inbox;                      /* DedupFetchRecord */
    bool opened;
    unsigned ref;                       /* owner, bottom halves, reads */

    bool stopped;                       /* atomic */
    bool kicked;                        /* atomic */

    /* IOThread */
    GArray *gen;                        /* DedupFetchRecord, sorted */
    unsigned at;                        /* the next of them */
    unsigned inflight;
    uint64_t inflight_bytes;
    int64_t rate_mark;
    uint64_t rate_bytes;

    uint64_t rate;                      /* atomic */
    Stat64 backlog, reads, bytes, read_ns, max_read_ns;
};

/* One read and the records it serves */
typedef struct FetchRun {
    DedupFetch *f;
    BlockBackend *blk;
    uint64_t start, end;
    unsigned n;
    DedupFetchRecord recs[];
} FetchRun;

/* Index in FetchDisk.targets; an own copy has only the first */
static unsigned target_index(unsigned depth, DedupNode node)
{
    return depth * DEDUP_NODE__MAX + node;
}

static void disk_free(void *opaque)
{
    FetchDisk *d = opaque;

    for (unsigned i = 0; i < d->targets->len; i++) {
        BlockBackend *blk = g_ptr_array_index(d->targets, i);

        if (blk) {
            blk_unref(blk);
        }
    }
    g_ptr_array_unref(d->targets);
    dedup_extents_free(&d->extents);
    g_free(d->path);
    g_free(d);
}

static void fetch_free_bh(void *opaque)
{
    DedupFetch *f = opaque;

    if (f->iothread) {
        iothread_destroy(f->iothread);
    }
    g_ptr_array_unref(f->disks);
    g_array_unref(f->inbox);
    g_array_unref(f->gen);
    qemu_mutex_destroy(&f->lock);
    g_free(f);
}

static void fetch_ref(DedupFetch *f)
{
    qatomic_inc(&f->ref);
}

static void fetch_unref(DedupFetch *f)
{
    if (qatomic_fetch_dec(&f->ref) == 1) {
        aio_bh_schedule_oneshot(qemu_get_aio_context(), fetch_free_bh, f);
    }
}

DedupFetch *dedup_fetch_new(const uint8_t *key)
{
    DedupFetch *f = g_new0(DedupFetch, 1);

    memcpy(f->key, key, DEDUP_KEY_LEN);
    qemu_mutex_init(&f->lock);
    f->disks = g_ptr_array_new_with_free_func(disk_free);
    f->inbox = g_array_new(false, false, sizeof(DedupFetchRecord));
    f->gen = g_array_new(false, false, sizeof(DedupFetchRecord));
    f->ref = 1;
    return f;
}

void dedup_fetch_add_disk(DedupFetch *f, char *path, DedupCopy copy)
{
    FetchDisk *d = g_new0(FetchDisk, 1);

    d->path = path;
    d->copy = copy;
    d->targets = g_ptr_array_new();
    g_ptr_array_add(f->disks, d);
}

unsigned dedup_fetch_disks(DedupFetch *f)
{
    return f->disks->len;
}

static void settle(DedupFetch *f, unsigned n)
{
    stat64_add(&f->backlog, -(uint64_t)n);
}

static void refuse(DedupFetch *f, const DedupFetchRecord *rec,
                   DedupAnswer why)
{
    dedup_incoming_refuse(f, rec, why);
    settle(f, 1);
}

/* Reads */

/*
 * The source may have grown the image since it was opened here: look again
 * before reading past the end that is known.
 */
static int coroutine_fn read_at(BlockBackend *blk, uint64_t start,
                                uint64_t len, void *buf)
{
    int64_t size = blk_co_getlength(blk);

    if (size >= 0 && start + len > size) {
        GRAPH_RDLOCK_GUARD();
        BlockDriverState *bs = blk_bs(blk);

        if (bs) {
            bdrv_co_refresh_total_sectors(bs, bs->total_sectors);
        }
    }
    size = blk_co_getlength(blk);
    if (size < 0) {
        return size;
    }
    if (start >= size) {
        return -EIO;
    }
    if (start + len > size) {           /* the tail reads as zeros */
        memset(buf + (size - start), 0, start + len - size);
        len = size - start;
    }
    return blk_co_pread(blk, start, len, buf, 0);
}

static void take(FetchRun *run, DedupFetchRecord *rec, const uint8_t *data)
{
    DedupFetch *f = run->f;
    FetchDisk *d = g_ptr_array_index(f->disks, rec->disk);
    uint8_t digest[DEDUP_DIGEST_LEN];

    dedup_digest(f->key, data, DEDUP_PAGE_SIZE, digest);
    if (memcmp(digest, rec->digest, DEDUP_DIGEST_LEN) &&
        !dedup_inject.no_verify) {
        refuse(f, rec, DEDUP_ANSWER_DIGEST);
        return;
    }
    dedup_incoming_place(f, rec, d->slot, data);
    settle(f, 1);
}

static void account(DedupFetch *f, int64_t start, uint64_t bytes)
{
    int64_t now = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);

    stat64_add(&f->reads, 1);
    stat64_add(&f->bytes, bytes);
    stat64_add(&f->read_ns, now - start);
    stat64_max(&f->max_read_ns, now - start);

    f->rate_bytes += bytes;
    if (now - f->rate_mark >= RATE_NS) {
        qatomic_set(&f->rate, f->rate_bytes * NANOSECONDS_PER_SECOND /
                              (now - f->rate_mark));
        f->rate_bytes = 0;
        f->rate_mark = now;
    }
}

static void kick(DedupFetch *f);

static void coroutine_fn fetch_co(void *opaque)
{
    FetchRun *run = opaque;
    DedupFetch *f = run->f;
    uint64_t len = run->end - run->start;
    uint8_t *buf = qemu_try_memalign(4096, len);
    int64_t start = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    int ret = -ENOMEM;

    if (dedup_inject.fetch_delay_us) {
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME,
                         dedup_inject.fetch_delay_us * 1000LL);
    }
    if (buf) {
        ret = read_at(run->blk, run->start, len, buf);
        account(f, start, ret < 0 ? 0 : len);
    }
    for (unsigned i = 0; i < run->n; i++) {
        DedupFetchRecord *rec = &run->recs[i];
        uint8_t *data = buf + (rec->offset - run->start);

        if (qatomic_read(&f->stopped)) {
            settle(f, run->n - i);
            break;
        }
        /* One bad sector must not condemn its neighbours */
        if (ret < 0 && buf && run->n > 1) {
            start = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
            if (read_at(run->blk, rec->offset, DEDUP_PAGE_SIZE, data) < 0) {
                refuse(f, rec, DEDUP_ANSWER_IO);
                continue;
            }
            account(f, start, DEDUP_PAGE_SIZE);
        } else if (ret < 0) {
            refuse(f, rec, DEDUP_ANSWER_IO);
            continue;
        }
        take(run, rec, data);
    }
    trace_dedup_fetch_read(run->start, len, run->n, ret);
    qemu_vfree(buf);
    g_free(run);
    f->inflight--;
    f->inflight_bytes -= len;
    kick(f);
    fetch_unref(f);
}

/* Where the record's bytes are; false: nowhere we know */
static bool locate(DedupFetch *f, DedupFetchRecord *rec)
{
    FetchDisk *d = g_ptr_array_index(f->disks, rec->disk);
    uint64_t guest = rec->sector * DEDUP_SECTOR;
    const DedupExtent *e;

    if (d->copy == DEDUP_COPY_OWN) {
        rec->target = 0;
        rec->offset = guest;
    } else {
        QEMU_LOCK_GUARD(&f->lock);
        e = dedup_extents_find(&d->extents, guest, DEDUP_PAGE_SIZE);
        if (!e) {
            return false;
        }
        rec->target = target_index(e->depth, e->node);
        rec->offset = e->host + (guest - e->start);
    }
    return rec->target < d->targets->len &&
           g_ptr_array_index(d->targets, rec->target);
}

static int by_place(const void *a, const void *b)
{
    const DedupFetchRecord *x = a, *y = b;

    if (x->disk != y->disk) {
        return x->disk < y->disk ? -1 : 1;
    }
    if (x->target != y->target) {
        return x->target < y->target ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* False: nothing is waiting.  The lock is not held long: records come in. */
static bool next_generation(DedupFetch *f)
{
    unsigned kept = 0;
    GArray *t = f->gen;

    g_array_set_size(f->gen, 0);
    f->at = 0;
    WITH_QEMU_LOCK_GUARD(&f->lock) {
        f->gen = f->inbox;
        f->inbox = t;
    }
    for (unsigned i = 0; i < f->gen->len; i++) {
        DedupFetchRecord *rec = &g_array_index(f->gen, DedupFetchRecord, i);

        if (!dedup_incoming_wanted(f, rec)) {
            settle(f, 1);
        } else if (!locate(f, rec)) {
            refuse(f, rec, DEDUP_ANSWER_IO);
        } else {
            g_array_index(f->gen, DedupFetchRecord, kept++) = *rec;
        }
    }
    g_array_set_size(f->gen, kept);
    qsort(f->gen->data, kept, sizeof(DedupFetchRecord), by_place);
    return kept > 0;
}

/*
 * Bytes to read at once: what storage delivered lately in a tenth of a
 * second.  A device with an IOThread drains its node when the guest starts,
 * and so waits for reads under way.
 */
static uint64_t inflight_max(DedupFetch *f)
{
    uint64_t rate = qatomic_read(&f->rate);

    return rate ? MAX(rate / 10, INFLIGHT_MIN) : DEPTH * READ_MAX;
}

/* What to read next, or NULL */
static FetchRun *next_run(DedupFetch *f)
{
    DedupFetchRecord *rec;
    unsigned first, n = 1;
    uint64_t end, max = MIN(READ_MAX, inflight_max(f));
    FetchRun *run;

    for (;;) {
        if (f->at == f->gen->len) {
            if (!next_generation(f)) {
                return NULL;
            }
            continue;
        }
        rec = &g_array_index(f->gen, DedupFetchRecord, f->at);
        if (dedup_incoming_wanted(f, rec)) {
            break;
        }
        settle(f, 1);
        f->at++;
    }
    first = f->at++;
    end = rec->offset + DEDUP_PAGE_SIZE;
    while (f->at < f->gen->len) {
        DedupFetchRecord *next = &rec[n];

        if (next->disk != rec->disk || next->target != rec->target ||
            next->offset > end + GAP_MAX ||
            next->offset + DEDUP_PAGE_SIZE - rec->offset > max) {
            break;
        }
        end = MAX(end, next->offset + DEDUP_PAGE_SIZE);
        f->at++;
        n++;
    }
    rec = &g_array_index(f->gen, DedupFetchRecord, first);
    run = g_malloc(sizeof(*run) + n * sizeof(*rec));
    run->f = f;
    run->blk = g_ptr_array_index(
        ((FetchDisk *)g_ptr_array_index(f->disks, rec->disk))->targets,
        rec->target);
    run->start = rec->offset;
    run->end = end;
    run->n = n;
    memcpy(run->recs, rec, n * sizeof(*rec));
    return run;
}

/* IOThread */
static void pump_bh(void *opaque)
{
    DedupFetch *f = opaque;
    FetchRun *run;

    qatomic_set(&f->kicked, false);
    smp_mb();                   /* pairs with kick(): no wake-up is lost */
    while (!qatomic_read(&f->stopped) && f->inflight < DEPTH &&
           f->inflight_bytes < inflight_max(f) && (run = next_run(f))) {
        f->inflight++;
        f->inflight_bytes += run->end - run->start;
        fetch_ref(f);
        qemu_coroutine_enter(qemu_coroutine_create(fetch_co, run));
    }
    fetch_unref(f);
}

static void kick(DedupFetch *f)
{
    if (!qatomic_xchg(&f->kicked, true)) {
        fetch_ref(f);
        aio_bh_schedule_oneshot(f->ctx, pump_bh, f);
    }
}

void dedup_fetch_add(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
    bool opened;

    if (!n) {
        return;
    }
    stat64_add(&f->backlog, n);
    WITH_QEMU_LOCK_GUARD(&f->lock) {
        g_array_append_vals(f->inbox, recs, n);
        opened = f->opened;
    }
    if (opened) {
        kick(f);
    }
}

void dedup_fetch_trim(DedupFetch *f)
{
    unsigned kept = 0;

    QEMU_LOCK_GUARD(&f->lock);
    for (unsigned i = 0; i < f->inbox->len; i++) {
        DedupFetchRecord *rec = &g_array_index(f->inbox, DedupFetchRecord, i);

        if (dedup_incoming_wanted(f, rec)) {
            g_array_index(f->inbox, DedupFetchRecord, kept++) = *rec;
        }
    }
    settle(f, f->inbox->len - kept);
    g_array_set_size(f->inbox, kept);
}

bool dedup_fetch_add_extent(DedupFetch *f, unsigned disk,
                            const DedupExtent *e)
{
    FetchDisk *d = g_ptr_array_index(f->disks, disk);

    QEMU_LOCK_GUARD(&f->lock);
    return dedup_extents_add(&d->extents, e);
}

/* Nodes */

static void open_target(FetchDisk *d, unsigned index, BlockDriverState *bs)
{
    Error *err = NULL;
    BlockBackend *blk = blk_new_with_bs(bs, 0, BLK_PERM_ALL, &err);

    if (!blk) {
        warn_report_err(err);
        return;
    }
    /* The device may take the node to its IOThread when the guest starts */
    blk_set_allow_aio_context_change(blk, true);
    if (d->targets->len <= index) {
        g_ptr_array_set_size(d->targets, index + 1);
    }
    g_ptr_array_index(d->targets, index) = blk;
}

/* The children of the node at one depth; collected first, then attached */
static void open_shared(FetchDisk *d, BlockBackend *dev)
{
    BlockDriverState *found[CHAIN_MAX][DEDUP_NODE__MAX] = { 0 };
    unsigned depth = 0;

    {
        GRAPH_RDLOCK_GUARD_MAINLOOP();
        BlockDriverState *bs = bdrv_skip_filters(blk_bs(dev));

        for (; bs && depth < CHAIN_MAX; depth++) {
            BdrvChild *c;

            if (bs->drv && bs->drv->protocol_name) {
                found[depth][DEDUP_NODE_SELF] = bs;
            }
            QLIST_FOREACH(c, &bs->children, next) {
                if (c == bs->file) {
                    found[depth][DEDUP_NODE_FILE] = c->bs;
                } else if (!strcmp(c->name, "data-file")) {
                    found[depth][DEDUP_NODE_DATA_FILE] = c->bs;
                }
            }
            bs = bdrv_cow_bs(bs);
            bs = bs ? bdrv_skip_filters(bs) : NULL;
        }
    }
    for (unsigned i = 0; i < depth; i++) {
        for (unsigned node = 0; node < DEDUP_NODE__MAX; node++) {
            if (found[i][node]) {
                open_target(d, target_index(i, node), found[i][node]);
            }
        }
    }
}

/*
 * Activating an inactive node makes its format forget its metadata under
 * whatever read is under way, and we do not wait for reads at the switch-over.
 * A mirror's target is active from the start; raw has nothing to forget.
 */
static bool own_is_safe(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();

    for (; bs; bs = bdrv_filter_or_cow_bs(bs)) {
        if ((bs->open_flags & BDRV_O_INACTIVE) && !bs->drv->is_filter &&
            strcmp(bs->drv->format_name, "raw") && !bs->drv->protocol_name) {
            return false;
        }
    }
    return true;
}

static void open_bh(void *opaque)
{
    static unsigned serial;
    DedupFetch *f = opaque;
    g_autofree char *name = NULL;
    Error *err = NULL;

    if (qatomic_read(&f->stopped)) {
        fetch_unref(f);
        return;
    }
    name = g_strdup_printf("dedup-fetch-%u", serial++);
    f->iothread = iothread_create(name, &err);
    if (!f->iothread) {
        /* Without it nothing is fetched: the source sends all in the end */
        warn_report_err(err);
        fetch_unref(f);
        return;
    }
    f->ctx = iothread_get_aio_context(f->iothread);
    for (unsigned i = 0; i < f->disks->len; i++) {
        FetchDisk *d = g_ptr_array_index(f->disks, i);
        BlockBackend *dev = dedup_blk_by_path(d->path);

        if (!dev || !blk_bs(dev)) {
            continue;
        }
        d->slot = dedup_slot_of(dev);
        if (d->copy == DEDUP_COPY_SHARED) {
            open_shared(d, dev);
        } else if (own_is_safe(blk_bs(dev))) {
            open_target(d, 0, blk_bs(dev));
        } else {
            warn_report("dedup: the own copy of %s is neither raw nor the "
                        "target of a mirror; its pages come from the source",
                        d->path);
        }
    }
    f->rate_mark = qemu_clock_get_ns(QEMU_CLOCK_REALTIME);
    WITH_QEMU_LOCK_GUARD(&f->lock) {
        f->opened = true;
    }
    kick(f);
    fetch_unref(f);
}

void dedup_fetch_start(DedupFetch *f)
{
    fetch_ref(f);
    aio_bh_schedule_oneshot(qemu_get_aio_context(), open_bh, f);
    if (qemu_in_coroutine()) {
        aio_co_schedule(qemu_get_current_aio_context(),
                        qemu_coroutine_self());
        qemu_coroutine_yield();
    }
}

void dedup_fetch_stop(DedupFetch *f)
{
    qatomic_set(&f->stopped, true);
    fetch_unref(f);
}

uint64_t dedup_fetch_backlog(DedupFetch *f)
{
    return stat64_get(&f->backlog);
}

uint64_t dedup_fetch_rate(DedupFetch *f)
{
    return qatomic_read(&f->rate);
}

void dedup_fetch_query(DedupFetch *f, DedupIncomingInfo *info)
{
    info->reads = stat64_get(&f->reads);
    info->bytes_read = stat64_get(&f->bytes);
    info->read_ns = stat64_get(&f->read_ns);
    info->max_read_ns = stat64_get(&f->max_read_ns);
    info->backlog = stat64_get(&f->backlog);
}
