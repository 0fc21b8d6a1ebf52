/*
 * QMP commands of the seeded mirror, see block/dedup-seed.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/base64.h"
#include "qemu/coroutine.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "block/aio.h"
#include "block/dedup-seed.h"
#include "migration/misc.h"
#include "monitor/monitor.h"
#include "system/block-backend.h"
#include "dedup-int.h"
#include "hold.h"

/* Between two parts of a bitmap others have their turn */
#define TURN_NS         (100 * SCALE_US)
/* Granules that become dirty in a step, if they are neighbours */
#define WORD            64

static NotifierWithReturn notifier;

static DedupDiskInfo *disk_info(DedupSeed *seed)
{
    static const DedupDiskState states[] = {
        [DEDUP_SEED_WATCHING] = DEDUP_DISK_STATE_WATCHING,
        [DEDUP_SEED_ARMED] = DEDUP_DISK_STATE_ARMED,
        [DEDUP_SEED_USED] = DEDUP_DISK_STATE_USED,
        [DEDUP_SEED_DROPPED] = DEDUP_DISK_STATE_DROPPED,
    };
    DedupDiskInfo *info = g_new0(DedupDiskInfo, 1);
    DedupSeedFigures f;

    dedup_seed_figures(seed, &f);
    info->token = g_strdup(f.token);
    info->device = g_strdup(f.device);
    info->node_name = g_strdup(f.node);
    info->state = states[f.state];
    info->reason = g_strdup(f.reason);
    info->recorder = g_strdup(f.recorder);
    info->size = f.size;
    info->granularity = f.granularity;
    info->proven = f.proven;
    info->dirty = f.dirty;
    if (f.state == DEDUP_SEED_ARMED || f.state == DEDUP_SEED_USED) {
        info->written = f.dirty - (f.size - f.proven);
    }
    return info;
}

/*
 * A command that goes through the bitmap of a disk, which may be large.  The
 * seed is looked up for each part: others may have dropped or freed it.
 */
typedef struct Parts {
    void (*part)(struct Parts *p);
    uint64_t done;              /* granules */
    DedupDiskInfo *info;        /* when all is done */
    Error *err;
    Coroutine *co;
} Parts;

/* Outside of the coroutine, which must not take the graph's lock like this */
static void part_bh(void *opaque)
{
    Parts *p = opaque;

    p->part(p);
    aio_co_wake(p->co);
}

static DedupDiskInfo *coroutine_fn in_parts(Parts *p, Error **errp)
{
    int64_t turn_ns = (int64_t)dedup_inject.disk_turn_ms * SCALE_MS;

    p->co = qemu_coroutine_self();
    while (true) {
        aio_bh_schedule_oneshot(qemu_get_aio_context(), part_bh, p);
        qemu_coroutine_yield();
        if (p->info || p->err) {
            error_propagate(errp, p->err);
            return p->info;
        }
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, turn_ns ? turn_ns : TURN_NS);
    }
}

typedef struct Watch {
    Parts parts;
    const char *device, *recorder;
    uint32_t granularity;
    char *token;                /* NULL: it has not begun */
} Watch;

static void watch_part(Parts *p)
{
    DEDUP_HOLD("bql", "x-dedup-disk-watch");
    Watch *w = container_of(p, Watch, parts);
    uint64_t before = p->done;
    BlockBackend *blk;
    DedupSeed *seed;
    bool more;

    if (!w->token) {
        blk = dedup_blk_by_device(w->device, &p->err);
        w->token = blk ? dedup_seed_watch(blk, w->device, w->granularity,
                                          w->recorder, &p->err) : NULL;
        return;
    }
    seed = dedup_seed_by_token(w->token, &p->err);
    if (seed && dedup_seed_watch_part(seed, &p->done,
                                      dedup_at_once(DEDUP_STEPS * WORD),
                                      &more, &p->err) && !more) {
        p->info = disk_info(seed);
    }
    dedup_hold_steps(DIV_ROUND_UP(p->done - before, WORD));
}

DedupDiskInfo *coroutine_fn
qmp_x_dedup_disk_watch(const char *device, bool has_granularity,
                       uint32_t granularity, const char *recorder,
                       Error **errp)
{
    Watch w = {
        .parts.part = watch_part,
        .device = device, .recorder = recorder,
        .granularity = has_granularity ? granularity : DEDUP_SEED_GRANULARITY,
    };
    DedupDiskInfo *info = in_parts(&w.parts, errp);

    g_free(w.token);
    return info;
}

DedupDiskInfo *qmp_x_dedup_disk_claim(const char *token, Error **errp)
{
    DedupSeed *seed = dedup_seed_by_token(token, errp);

    return seed && dedup_seed_claim(seed, errp) ? disk_info(seed) : NULL;
}

void qmp_x_dedup_disk_clear(const char *token, uint64_t offset,
                            uint64_t length, Error **errp)
{
    DEDUP_HOLD("bql", "x-dedup-disk-clear");
    DedupSeed *seed = dedup_seed_by_token(token, errp);

    if (seed) {
        dedup_seed_clear(seed, offset, length, errp);
    }
}

typedef struct Arm {
    Parts parts;
    const char *token;
    int fd;
    uint64_t canary_offset;
    const uint8_t *canary;
    bool begun;
} Arm;

static void arm_part(Parts *p)
{
    DEDUP_HOLD("bql", "x-dedup-disk-arm");
    Arm *a = container_of(p, Arm, parts);
    DedupSeed *seed = dedup_seed_by_token(a->token, &p->err);
    uint64_t before = p->done;
    bool more;

    if (seed && !a->begun) {
        a->begun = dedup_seed_arm_begin(seed, a->fd, a->canary_offset,
                                        &p->err);
    } else if (seed && !dedup_seed_arm_part(seed, a->fd, &p->done,
                                            dedup_at_once(DEDUP_STEPS), &more,
                                            &p->err)) {
        dedup_seed_arm_give_up(seed);
    } else if (seed && !more) {
        dedup_seed_arm(seed, a->canary_offset, a->canary);
        p->info = disk_info(seed);
    }
    dedup_hold_steps(p->done - before);
}

DedupDiskInfo *coroutine_fn
qmp_x_dedup_disk_arm(const char *token, const char *proven,
                     DedupDiskCanary *canary, Error **errp)
{
    int fd = monitor_get_fd(monitor_cur(), proven, errp);
    g_autofree uint8_t *data = NULL;
    DedupDiskInfo *info = NULL;
    DedupSeed *seed;
    size_t size;

    if (fd < 0) {
        return NULL;
    }
    seed = dedup_seed_by_token(token, errp);
    data = seed ? qbase64_decode(canary->data, -1, &size, errp) : NULL;
    if (data && size != DEDUP_SEED_CANARY) {
        error_setg(errp, "The canary must have %d bytes", DEDUP_SEED_CANARY);
    } else if (data) {
        Arm a = {
            .parts.part = arm_part, .token = token, .fd = fd,
            .canary_offset = canary->offset, .canary = data,
        };

        info = in_parts(&a.parts, errp);
    }
    close(fd);
    return info;
}

void qmp_x_dedup_disk_bitmap(const char *token, const char *fdname,
                             Error **errp)
{
    DEDUP_HOLD("bql", "x-dedup-disk-bitmap");
    int fd = monitor_get_fd(monitor_cur(), fdname, errp);
    DedupSeed *seed;

    if (fd < 0) {
        return;
    }
    seed = dedup_seed_by_token(token, errp);
    if (seed) {
        dedup_seed_write_dirty(seed, fd, errp);
    }
    close(fd);
}

DedupDiskInfoList *qmp_x_dedup_disk_query(Error **errp)
{
    DEDUP_HOLD("bql", "x-dedup-disk-query");
    DedupDiskInfoList *list = NULL;

    for (DedupSeed *s = dedup_seed_next(NULL); s; s = dedup_seed_next(s)) {
        QAPI_LIST_PREPEND(list, disk_info(s));
    }
    return list;
}

void qmp_x_dedup_disk_drop(const char *token, Error **errp)
{
    DEDUP_HOLD("bql", "x-dedup-disk-drop");
    DedupSeed *seed = dedup_seed_by_token(token, errp);

    if (seed) {
        dedup_seed_forget(seed);
    }
}

static int seed_notify(NotifierWithReturn *n, MigrationEvent *e, Error **errp)
{
    if (e->type == MIG_EVENT_PRECOPY_DONE) {
        dedup_seed_drop_all("the guest has left: others write to the disk");
    }
    return 0;
}

void dedup_disk_seed_init(void)
{
    migration_add_notifier(&notifier, seed_notify);
}
