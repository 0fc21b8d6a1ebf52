/*
 * Source: what comes back
 *
 * The return-path thread decodes messages into an inbox; the migration thread
 * acts on them when it holds the dirty bitmap's mutex.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/bswap.h"
#include "qemu/lockable.h"
#include "source-int.h"
#include "trace.h"

#define NACK_MIN        512

typedef struct Answer {
    uint32_t first, count;
    DedupAnswer status;
} Answer;

void dedup_source_rp_pong(uint32_t value)
{
    if (value == DEDUP_PING_MAGIC) {
        WITH_QEMU_LOCK_GUARD(&src.lock) {
            src.pong = true;
        }
        qemu_sem_post(&src.wake);
    }
}

static void inbox_add(void *opaque, uint32_t first, uint32_t count,
                      DedupAnswer status)
{
    Answer a = { first, count, status };

    g_array_append_val(src.inbox, a);
}

void dedup_source_rp_message(const uint8_t *buf, size_t len)
{
    uint32_t backlog, rate;

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        if (!src.listening || len < 3) {
            return;
        }
        switch (buf[0]) {
        case DEDUP_MESSAGE_HELLO:
            src.hello = true;
            src.peer_version = buf[1] << 8 | buf[2];
            src.peer_features = len < 7 ? 0 : ldl_be_p(buf + 3);
            break;
        case DEDUP_MESSAGE_ANSWERS:
            /* What was decoded before an error is harmless: rule 2 */
            dedup_decode_answers(buf + 1, len - 1, &backlog, &rate,
                                 inbox_add, NULL);
            src.peer_backlog = backlog;
            src.peer_rate = (uint64_t)rate << 10;
            break;
        }
    }
    qemu_sem_post(&src.wake);
}

static void take_answer(uint32_t id, DedupAnswer status)
{
    uint64_t page;
    DedupRam *dr = dedup_outstanding_settle(&src.out, id, &page);
    DedupHint h;

    if (!dr) {
        return;                         /* superseded or sent again meanwhile */
    }
    if (status == DEDUP_ANSWER_OK) {
        clear_bit(page, dr->owed);
        src.fig.storage_pages++;
        return;
    }
    if (status == DEDUP_ANSWER_DIGEST) {
        src.fig.nack_digest++;
    } else {
        src.fig.nack_io++;
    }
    if (dedup_hint_get(dr, page, &h)) {
        unsigned disk = src.disk_of_slot[h.slot];

        if (disk && status == DEDUP_ANSWER_DIGEST) {
            SourceDisk *d = g_ptr_array_index(src.disks, disk - 1);

            /* Moved, perhaps; good for the next page of this neighbourhood */
            if (d->resolver) {
                dedup_resolver_want(d->resolver, h.sector * DEDUP_SECTOR);
            }
        }
        dedup_hint_drop(dr, page, h.word);
    }
    dedup_set_dirty(dr, page);
}

void source_take_answers(void)
{
    g_autoptr(GArray) box = NULL;
    uint64_t nacks, before = src.out.count;

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        if (src.inbox->len) {
            box = src.inbox;
            src.inbox = g_array_new(false, false, sizeof(Answer));
        }
        src.fig.peer_backlog = src.peer_backlog;
        src.fig.peer_read_rate = src.peer_rate;
    }
    for (unsigned i = 0; box && i < box->len; i++) {
        Answer *a = &g_array_index(box, Answer, i);
        uint32_t end = MIN((uint64_t)a->first + a->count, src.out.next_id);

        for (uint32_t id = a->first; id < end; id++) {
            take_answer(id, a->status);
        }
    }
    dedup_pace_answers(&src.pace, now_us(), before - src.out.count,
                       src.out.count);

    nacks = src.fig.nack_digest + src.fig.nack_io;
    if (nacks > NACK_MIN && nacks > src.fig.storage_pages &&
        src.state == DEDUP_SOURCE_STATE_ACTIVE) {
        source_set_reason("the destination refused %" PRIu64 " of %" PRIu64
                   " records (%" PRIu64 " other bytes, %" PRIu64
                   " not readable)", nacks, nacks + src.fig.storage_pages,
                   src.fig.nack_digest, src.fig.nack_io);
        source_set_state(DEDUP_SOURCE_STATE_DRAINING);
    }
}

void source_answers_init(void)
{
    src.inbox = g_array_new(false, false, sizeof(Answer));
}
