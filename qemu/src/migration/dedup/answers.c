/*
 * The destination's answers, sent from a thread of their own
 *
 * The return path is written with blocking calls that must not run in a
 * coroutine or hold up the fetcher.  Answers are collected for a moment,
 * sorted and sent as runs, so that a sequential fetch costs a few bytes for
 * hundreds of pages.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/thread.h"
#include "io/channel-socket.h"
#include "io/channel-tls.h"
#include "migration/misc.h"
#include "../migration.h"
#include "../qemu-file.h"
#include "dedup-int.h"

#define COLLECT_US  1000
#define POLL_MS     2
/*
 * A source that does not take its answers loses them: to it, records without
 * an answer are dirty pages
 */
#define MAX_WAITING (4 * 1024 * 1024)

struct DedupAnswers {
    QemuThread thread;
    QemuMutex lock;
    QemuCond cond;
    GArray *results;            /* DedupResult */
    bool quit;
    DedupFetch *fetch;
};

static int by_id(const void *a, const void *b)
{
    uint32_t x = ((const DedupResult *)a)->id;
    uint32_t y = ((const DedupResult *)b)->id;

    return x < y ? -1 : x > y;
}

/* The socket below the return path, -1 if there is none */
static int return_path_fd(MigrationIncomingState *mis)
{
    /* Post-copy that is interrupted closes it */
    QEMU_LOCK_GUARD(&mis->rp_mutex);
    QIOChannel *ioc = mis->to_src_file ? qemu_file_get_ioc(mis->to_src_file)
                                       : NULL;

    if (ioc && object_dynamic_cast(OBJECT(ioc), TYPE_QIO_CHANNEL_TLS)) {
        ioc = QIO_CHANNEL_TLS(ioc)->master;
    }
    return ioc && object_dynamic_cast(OBJECT(ioc), TYPE_QIO_CHANNEL_SOCKET)
           ? QIO_CHANNEL_SOCKET(ioc)->fd : -1;
}

/*
 * Wait until a message can be written without blocking: the end of the
 * migration waits for this thread, in the main loop.  False: it has come.
 */
static bool wait_writable(DedupAnswers *a)
{
    GPollFD p = { .fd = return_path_fd(migration_incoming_get_current()),
                  .events = G_IO_OUT };

    while (!qatomic_read(&a->quit)) {
        if (p.fd < 0 || g_poll(&p, 1, POLL_MS) != 0) {
            return true;
        }
    }
    return false;
}

static void send_all(DedupAnswers *a, GArray *results)
{
    DedupResult *res = (DedupResult *)results->data;
    unsigned n = results->len, done;
    uint8_t msg[DEDUP_WIRE_MAX_MESSAGE];

    qsort(res, n, sizeof(*res), by_id);
    while (n) {
        size_t len = dedup_encode_answers(
            msg, sizeof(msg),
            MIN(dedup_fetch_backlog(a->fetch), UINT32_MAX),
            MIN(dedup_fetch_rate(a->fetch) >> 10, UINT32_MAX), res, n, &done);

        if (dedup_inject.answer_delay_us) {
            g_usleep(dedup_inject.answer_delay_us);
        }
        /* No return path any more: nobody waits for the rest either */
        if (!wait_writable(a) ||
            migrate_send_rp_dedup(migration_incoming_get_current(), len,
                                  msg)) {
            return;
        }
        res += done;
        n -= done;
    }
}

static void *answers_thread(void *opaque)
{
    DedupAnswers *a = opaque;
    g_autoptr(GArray) mine = g_array_new(false, false, sizeof(DedupResult));

    qemu_mutex_lock(&a->lock);
    while (!a->quit) {
        GArray *t = a->results;

        if (!t->len) {
            qemu_cond_wait(&a->cond, &a->lock);
            continue;
        }
        qemu_mutex_unlock(&a->lock);
        g_usleep(COLLECT_US);
        qemu_mutex_lock(&a->lock);
        a->results = mine;
        mine = t;
        qemu_mutex_unlock(&a->lock);
        send_all(a, mine);
        g_array_set_size(mine, 0);
        qemu_mutex_lock(&a->lock);
    }
    qemu_mutex_unlock(&a->lock);
    return NULL;
}

DedupAnswers *dedup_answers_new(DedupFetch *f)
{
    DedupAnswers *a = g_new0(DedupAnswers, 1);

    qemu_mutex_init(&a->lock);
    qemu_cond_init(&a->cond);
    a->results = g_array_new(false, false, sizeof(DedupResult));
    a->fetch = f;
    qemu_thread_create(&a->thread, "mig/dst/answers", answers_thread, a,
                       QEMU_THREAD_JOINABLE);
    return a;
}

void dedup_answers_add(DedupAnswers *a, uint32_t id, DedupAnswer answer)
{
    DedupResult r = { .id = id, .status = answer };

    if (dedup_inject.no_answers) {
        return;
    }
    QEMU_LOCK_GUARD(&a->lock);
    if (a->results->len >= MAX_WAITING) {
        return;
    }
    g_array_append_val(a->results, r);
    if (a->results->len == 1) {
        qemu_cond_signal(&a->cond);
    }
}

void dedup_answers_free(DedupAnswers *a)
{
    WITH_QEMU_LOCK_GUARD(&a->lock) {
        a->quit = true;
        qemu_cond_signal(&a->cond);
    }
    qemu_thread_join(&a->thread);
    qemu_cond_destroy(&a->cond);
    qemu_mutex_destroy(&a->lock);
    g_array_unref(a->results);
    g_free(a);
}
