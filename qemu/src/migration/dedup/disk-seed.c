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

DedupDiskInfo *qmp_x_dedup_disk_watch(const char *device, bool has_granularity,
                                      uint32_t granularity,
                                      const char *recorder, Error **errp)
{
    DEDUP_HOLD("bql", "x-dedup-disk-watch");
    BlockBackend *blk = dedup_blk_by_device(device, errp);
    DedupSeed *seed;

    if (!blk) {
        return NULL;
    }
    seed = dedup_seed_watch(blk, device,
                            has_granularity ? granularity :
                            DEDUP_SEED_GRANULARITY, recorder, errp);
    return seed ? disk_info(seed) : NULL;
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

/* What x-dedup-disk-arm does, of a disk that may be large */
typedef struct Arm {
    const char *token;
    int fd;
    uint64_t canary_offset;
    const uint8_t *canary;
    uint64_t done;              /* granules */
    bool begun;
    DedupDiskInfo *info;        /* when all is done */
    Error *err;
    Coroutine *co;
} Arm;

static void arm_part(Arm *a)
{
    DEDUP_HOLD("bql", "x-dedup-disk-arm");
    DedupSeed *seed = dedup_seed_by_token(a->token, &a->err);
    uint64_t before = a->done;
    bool more;

    if (seed && !a->begun) {
        a->begun = dedup_seed_arm_begin(seed, a->fd, a->canary_offset,
                                        &a->err);
    } else if (seed && !dedup_seed_arm_part(seed, a->fd, &a->done,
                                            dedup_at_once(DEDUP_STEPS), &more,
                                            &a->err)) {
        dedup_seed_arm_give_up(seed);
    } else if (seed && !more) {
        dedup_seed_arm(seed, a->canary_offset, a->canary);
        a->info = disk_info(seed);
    }
    dedup_hold_steps(a->done - before);
}

/* Outside of the coroutine, which must not take the graph's lock like this */
static void arm_bh(void *opaque)
{
    Arm *a = opaque;

    arm_part(a);
    aio_co_wake(a->co);
}

static void coroutine_fn arm(Arm *a)
{
    a->co = qemu_coroutine_self();
    while (true) {
        aio_bh_schedule_oneshot(qemu_get_aio_context(), arm_bh, a);
        qemu_coroutine_yield();
        if (a->info || a->err) {
            return;
        }
        qemu_co_sleep_ns(QEMU_CLOCK_REALTIME, TURN_NS);
    }
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
            .token = token, .fd = fd,
            .canary_offset = canary->offset, .canary = data,
        };

        arm(&a);
        info = a.info;
        error_propagate(errp, a.err);
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
