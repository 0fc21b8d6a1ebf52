/*
 * A place the destination reads from
 *
 * The guest will use its disks through nodes of its own, perhaps with the
 * host's page cache in between, and takes them to its IOThreads when it
 * starts.  So what is read here must leave nothing in that cache, which would
 * be stale once the source has written its last; and a read that hangs must
 * not be one of the guest's nodes', which are drained at the hand-over.
 *
 *   file, host_device   a descriptor of our own, opened with O_DIRECT when it
 *                       is first read from, in a worker thread
 *   network storage     a node of our own, a connection of its own, without
 *                       a cache, in the fetcher's AioContext
 *   filters and the     the guest's node, if what is below it bypasses the
 *   like                page cache
 *   own copies          the guest's node: written to through it as well
 *
 * Everything else is refused, with a reason.
 *
 * Who may touch it: made and freed in the main loop; read from in coroutines
 * of the fetcher's IOThread.  @fd belongs to the worker threads, under @lock.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/block_int.h"
#include "block/thread-pool.h"
#include "qapi/error.h"
#include "qapi/qapi-commands-yank.h"
#include "qobject/qdict.h"
#include "qemu/coroutine.h"
#include "qemu/main-loop.h"
#include "system/block-backend.h"
#include "fetch-int.h"

#define NOT_OPEN    (-1)

struct DedupTarget {
    char *path;                 /* of a file or device, or NULL */
    QemuMutex lock;
    int fd;                     /* NOT_OPEN, or -errno of the attempt */
    BlockBackend *blk;          /* if there is no path */
    bool guests;                /* it is a node of the guest's */
    char *yank;                 /* our own node, to cut its connection */
};

/* Files */

static int target_fd(DedupTarget *t)
{
    QEMU_LOCK_GUARD(&t->lock);
    if (t->fd == NOT_OPEN) {
        t->fd = qemu_open_old(t->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (t->fd < 0) {
            t->fd = -errno - 1;
        }
    }
    return t->fd < 0 ? t->fd + 1 : t->fd;
}

typedef struct FileRead {
    DedupTarget *t;
    uint64_t start, len;
    uint8_t *buf;
} FileRead;

/* Worker thread: may hang as long as it likes */
static int file_read(void *opaque)
{
    FileRead *r = opaque;
    int fd = target_fd(r->t);
    uint64_t done = 0;

    if (fd < 0) {
        return fd;
    }
    while (done < r->len) {
        ssize_t n = pread(fd, r->buf + done, r->len - done, r->start + done);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        if (n == 0 || n % DEDUP_READ_ALIGN) {
            done += n;
            break;                      /* the end of the file */
        }
        done += n;
    }
    if (!done) {
        return -EIO;
    }
    memset(r->buf + done, 0, r->len - done);
    return 0;
}

/* Nodes */

static int coroutine_fn node_read(BlockBackend *blk, uint64_t start,
                                  uint64_t len, void *buf)
{
    int64_t size = blk_co_getlength(blk);

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

int coroutine_fn dedup_target_read(DedupTarget *t, uint64_t start,
                                   uint64_t len, void *buf)
{
    FileRead r = { t, start, len, buf };

    return t->path ? thread_pool_submit_co(file_read, &r)
                   : node_read(t->blk, start, len, buf);
}

static DedupTarget *target_new(void)
{
    DedupTarget *t = g_new0(DedupTarget, 1);

    qemu_mutex_init(&t->lock);
    t->fd = NOT_OPEN;
    return t;
}

static DedupTarget *target_of_node(BlockDriverState *bs, Error **errp)
{
    BlockBackend *blk = blk_new_with_bs(bs, 0, BLK_PERM_ALL, errp);
    DedupTarget *t;

    if (!blk) {
        return NULL;
    }
    /* The device may take the node to its IOThread when the guest starts */
    blk_set_allow_aio_context_change(blk, true);
    t = target_new();
    t->blk = blk;
    t->guests = true;
    return t;
}

static DedupTarget *target_own_node(BlockDriverState *of, AioContext *ctx,
                                    Error **errp)
{
    QDict *options;
    BlockDriverState *bs;
    DedupTarget *t;

    {
        GRAPH_RDLOCK_GUARD_MAINLOOP();
        bdrv_refresh_filename(of);
        options = qdict_clone_shallow(of->full_open_options);
    }
    qdict_put_str(options, "driver", of->drv->format_name);
    qdict_put_str(options, BDRV_OPT_READ_ONLY, "on");
    qdict_put_str(options, BDRV_OPT_CACHE_DIRECT, "on");
    bs = bdrv_open(NULL, NULL, options, 0, errp);
    if (!bs) {
        return NULL;
    }
    t = target_of_node(bs, errp);
    if (t) {
        t->guests = false;
    }
    if (t && blk_set_aio_context(t->blk, ctx, errp) < 0) {
        dedup_target_free(t);
        t = NULL;
    }
    if (t && !strcmp(of->drv->format_name, "nbd")) {
        t->yank = g_strdup(bdrv_get_node_name(bs));
    }
    bdrv_unref(bs);
    return t;
}

static bool is_one_of(BlockDriverState *bs, const char *const *names)
{
    for (; *names; names++) {
        if (!strcmp(bs->drv->format_name, *names)) {
            return true;
        }
    }
    return false;
}

static const char *const files[] = { "file", "host_device", NULL };
/* Drivers that keep nothing in memory of this host, asked for it or not */
static const char *const uncached[] = { "nbd", "iscsi", "nvme", NULL };
/* They expect their own AioContext around them */
static const char *const bound[] = { "gluster", "iscsi", "nfs", "rbd", NULL };

/* The node at the bottom, NULL if there is more than one */
static BlockDriverState *bottom(BlockDriverState *bs)
{
    GRAPH_RDLOCK_GUARD_MAINLOOP();
    while (bs && bs->drv && !is_one_of(bs, files)) {
        BdrvChild *c = QLIST_FIRST(&bs->children);

        if (!c) {
            return bs;
        }
        if (QLIST_NEXT(c, next)) {
            return NULL;
        }
        bs = c->bs;
    }
    return bs && bs->drv ? bs : NULL;
}

DedupTarget *dedup_target_shared(BlockDriverState *bs, AioContext *ctx,
                                 Error **errp)
{
    BlockDriverState *last = bottom(bs);
    DedupTarget *t;

    if (dedup_inject.no_own_target) {
        return target_of_node(bs, errp);
    }
    if (!last) {
        error_setg(errp, "node '%s' reads from more than one place",
                   bdrv_get_node_name(bs));
        return NULL;
    }
    if (last == bs && is_one_of(bs, files)) {
        if (g_str_has_prefix(bs->filename, "/dev/fdset/")) {
            error_setg(errp, "file of node '%s' was passed as a descriptor",
                       bdrv_get_node_name(bs));
            return NULL;
        }
        t = target_new();
        t->path = g_strdup(bs->filename);
        return t;
    }
    if (last == bs && bs->drv->protocol_name) {
        return target_own_node(bs, ctx, errp);
    }
    if (!(last->open_flags & BDRV_O_NOCACHE) && !is_one_of(last, uncached)) {
        error_setg(errp, "node '%s' would be read through the host's cache: "
                   "open it with cache.direct=on", bdrv_get_node_name(last));
        return NULL;
    }
    if (is_one_of(last, bound)) {
        error_setg(errp, "node '%s' cannot be read from another thread",
                   bdrv_get_node_name(last));
        return NULL;
    }
    return target_of_node(bs, errp);
}

DedupTarget *dedup_target_own(BlockDriverState *bs, Error **errp)
{
    BlockDriverState *last = bottom(bs);

    if (last && is_one_of(last, bound)) {
        error_setg(errp, "node '%s' cannot be read from another thread",
                   bdrv_get_node_name(last));
        return NULL;
    }
    return target_of_node(bs, errp);
}

bool dedup_target_is_guests(DedupTarget *t)
{
    return t->guests;
}

void dedup_target_cut(DedupTarget *t)
{
    YankInstance node = { .type = YANK_INSTANCE_TYPE_BLOCK_NODE,
                          .u.block_node.node_name = t->yank };
    YankInstanceList list = { .value = &node };

    if (t->yank) {
        qmp_yank(&list, NULL);
    }
}

void dedup_target_free(DedupTarget *t)
{
    if (t->fd >= 0) {
        qemu_close(t->fd);
    }
    if (t->blk) {
        blk_unref(t->blk);
    }
    qemu_mutex_destroy(&t->lock);
    g_free(t->path);
    g_free(t->yank);
    g_free(t);
}
