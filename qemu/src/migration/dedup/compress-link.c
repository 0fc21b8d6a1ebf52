/*
 * How busy the link is
 *
 * Two things may hold bytes back: the bandwidth limit, which QEMU applies to
 * windows of 100 ms, and the socket, whose queue is what the link has not
 * taken yet.  The link idles only if neither does.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include <sys/ioctl.h>
#include <linux/sockios.h>
#include "io/channel-socket.h"
#include "io/channel-tls.h"
#include "qemu/timer.h"
#include "../migration.h"
#include "../migration-stats.h"
#include "../qemu-file.h"
#include "compress.h"

/* In the socket's queue: 10 ms at 100 Mbit/s, 0.1 ms at 10 Gbit/s */
#define BUSY            (128 * 1024)

void dedup_link_init(DedupLink *l, QEMUFile *f)
{
    QIOChannel *ioc = qemu_file_get_ioc(f);
    QIOChannelTLS *tls = (QIOChannelTLS *)
        object_dynamic_cast(OBJECT(ioc), TYPE_QIO_CHANNEL_TLS);
    QIOChannelSocket *sock = (QIOChannelSocket *)
        object_dynamic_cast(OBJECT(tls ? tls->master : ioc),
                            TYPE_QIO_CHANNEL_SOCKET);

    l->fd = sock ? sock->fd : -1;
}

static uint64_t used(void)
{
    return migration_transferred_bytes() -
           stat64_get(&mig_stats.rate_limit_start);
}

uint64_t dedup_link_limit(void)
{
    uint64_t limit = migration_rate_get();

    return limit == RATE_LIMIT_DISABLED ? 0 : limit * (1000 / BUFFER_DELAY);
}

uint64_t dedup_link_room(void)
{
    uint64_t limit = migration_rate_get();

    return limit == RATE_LIMIT_DISABLED ? UINT64_MAX
           : limit > used() ? limit - used() : 0;
}

/* By the bandwidth limit: is less sent than the time that passed allows? */
static bool ahead(void)
{
    uint64_t limit = migration_rate_get();
    int64_t passed = qemu_clock_get_ms(QEMU_CLOCK_REALTIME) -
                     migrate_get_current()->iteration_start_time;

    return limit != RATE_LIMIT_DISABLED && passed < BUFFER_DELAY &&
           (double)used() * BUFFER_DELAY >= (double)limit * MAX(passed, 0);
}

bool dedup_link_idle(DedupLink *l)
{
    int queued;

    return l->fd >= 0 && !ahead() && !ioctl(l->fd, SIOCOUTQ, &queued) &&
           queued < BUSY;
}
