/*
 * QMP commands of the seeded mirror, see block/dedup-seed.c
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/base64.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-dedup.h"
#include "block/dedup-seed.h"
#include "migration/misc.h"
#include "monitor/monitor.h"
#include "system/block-backend.h"
#include "dedup-int.h"

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
    DedupSeed *seed = dedup_seed_by_token(token, errp);

    if (seed) {
        dedup_seed_clear(seed, offset, length, errp);
    }
}

DedupDiskInfo *qmp_x_dedup_disk_arm(const char *token, const char *proven,
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
    } else if (data && dedup_seed_arm(seed, fd, canary->offset, data, errp)) {
        info = disk_info(seed);
    }
    close(fd);
    return info;
}

void qmp_x_dedup_disk_bitmap(const char *token, const char *fdname,
                             Error **errp)
{
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
