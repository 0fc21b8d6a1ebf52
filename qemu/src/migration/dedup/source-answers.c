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
#include "hold.h"
#include "source-int.h"
#include "trace.h"

#define NACK_MIN        512
/* Acted on at once: the dirty bitmap's mutex is held */
#define AT_ONCE         16384
#define AT_ONCE_US      1500
#define LOOK            1024            /* between looks at the clock */
/* Runs that wait.  What there is no room for counts as not answered. */
#define INBOX_MAX       (1024 * 1024)

typedef struct Answer {
    uint32_t first, count;
    DedupAnswer status;
} Answer;

/* No count: a destination may send more than one could hold */
void source_wake(void)
{
    QEMU_LOCK_GUARD(&src.lock);
    src.news = true;
    qemu_cond_signal(&src.wake);
}

void dedup_source_rp_pong(uint32_t value)
{
    if (value == DEDUP_PING_MAGIC) {
        WITH_QEMU_LOCK_GUARD(&src.lock) {
            src.pong = true;
        }
        source_wake();
    }
}

/*
 * A record is answered once at most.  So all answers together take no more
 * time than all records did, whatever the destination sends.
 */
static void inbox_add(void *opaque, uint32_t first, uint32_t count,
                      DedupAnswer status)
{
    uint32_t next = qatomic_read(&src.out.next_id);
    Answer a = { first, count, status };

    if (!first || first >= next || count > next - first ||
        src.answered + count >= next) {
        src.listening = false;
        return;
    }
    src.answered += count;
    if (src.listening && src.inbox->len < INBOX_MAX) {
        g_array_append_val(src.inbox, a);
    }
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
            if (src.hello) {
                return;
            }
            src.hello = true;
            src.hello_us = now_us();
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
    source_wake();
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
        set_bit(page, dr->told);
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
            if (d->resolver && !src.postcopy) {
                dedup_resolver_want(d->resolver, h.sector * DEDUP_SECTOR);
            }
        }
        dedup_hint_drop(dr, page, h.word);
    }
    dedup_set_dirty(dr, page);
}

/* False: there is none */
static bool next_answers(void)
{
    GArray *done = src.taking;

    QEMU_LOCK_GUARD(&src.lock);
    if (!src.inbox->len) {
        return false;
    }
    g_array_set_size(done, 0);
    src.taking = src.inbox;
    src.inbox = done;
    src.taken = 0;
    return true;
}

uint64_t source_due(void)
{
    return dedup_pace_due(&src.pace, now_us(), src.out.next_id - 1,
                          src.out.count);
}

void source_take_answers(void)
{
    uint64_t nacks, before = src.out.count;
    uint64_t left = dedup_at_once(AT_ONCE);
    int64_t start = now_us();

    WITH_QEMU_LOCK_GUARD(&src.lock) {
        src.fig.peer_backlog = src.peer_backlog;
        src.fig.peer_read_rate = src.peer_rate;
        if (!src.listening && src.state == DEDUP_SOURCE_STATE_ACTIVE) {
            src.violated = true;
        }
    }
    while (left && (src.taken < src.taking->len || next_answers())) {
        Answer *a = &g_array_index(src.taking, Answer, src.taken);

        for (; left && a->count; left--) {
            take_answer(a->first++, a->status);
            a->count--;
            if (left % LOOK == 1 && now_us() - start > AT_ONCE_US) {
                left = 1;
            }
        }
        src.taken += !a->count;
    }
    dedup_hold_steps(before - src.out.count);
    dedup_pace_answers(&src.pace, now_us(), before - src.out.count,
                       source_due());
    if (src.violated && src.state == DEDUP_SOURCE_STATE_ACTIVE) {
        source_set_reason("the destination answered records that were not "
                          "sent, or answered one twice");
        source_set_state(DEDUP_SOURCE_STATE_DRAINING);
    }

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
    src.taking = g_array_new(false, false, sizeof(Answer));
}

bool source_has_answers(void)
{
    QEMU_LOCK_GUARD(&src.lock);
    return src.taken < src.taking->len || src.inbox->len;
}
