/*
 * Records that wait while storage hangs: none that counts is lost, there are
 * not many more than pages, and no element takes long
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "test.h"
#include "qemu/osdep.h"
#include "fetch-int.h"

#define TEST_GROUP "fetch-queue"
#define PAGES   (64 * 1024)
#define ELEMENT DEDUP_WIRE_MAX_BATCH

static uint32_t newest[PAGES];
static uint32_t last_id;
static unsigned looked_at;

bool dedup_incoming_wanted(DedupFetch *f, const DedupFetchRecord *rec)
{
    looked_at++;
    return newest[rec->page] == rec->id;
}

void dedup_incoming_refuse(DedupFetch *f, const DedupFetchRecord *rec,
                           DedupAnswer why)
{
    abort();                            /* each is found */
}

bool dedup_fetch_locate(DedupFetch *f, DedupFetchRecord *rec)
{
    rec->target = 0;
    rec->offset = rec->sector * DEDUP_SECTOR;
    return true;
}

DedupTarget *dedup_fetch_target(DedupFetch *f, const DedupFetchRecord *rec)
{
    return NULL;
}

void dedup_fetch_kick(DedupFetch *f)
{
}

static void begin(DedupFetch *f)
{
    memset(f, 0, sizeof(*f));
    memset(newest, 0, sizeof(newest));
    qemu_mutex_init(&f->lock);
    f->inbox = g_array_new(false, false, sizeof(DedupFetchRecord));
    f->gen = g_array_new(false, false, sizeof(DedupFetchRecord));
    last_id = 0;
}

static void end(DedupFetch *f)
{
    dedup_fetch_queue_free(f);
    qemu_mutex_destroy(&f->lock);
}

/* An element for pages anywhere, as load_records() takes it */
static void element(DedupFetch *f)
{
    static DedupFetchRecord recs[ELEMENT];

    looked_at = 0;
    if (stat64_get(&f->backlog) > PAGES / 2) {
        dedup_fetch_trim(f);
    }
    for (unsigned i = 0; i < ELEMENT; i++) {
        unsigned page = below(PAGES);

        recs[i] = (DedupFetchRecord) { .page = page, .sector = page * 8,
                                       .id = ++last_id };
        newest[page] = last_id;
    }
    dedup_fetch_add(f, recs, ELEMENT);
}

/* Each page that has a record is read exactly once */
static void check_all_there(DedupFetch *f)
{
    g_autofree uint8_t *seen = g_malloc0(PAGES);
    DedupFetchRun *run;

    while ((run = dedup_fetch_next_run(f, DEDUP_READ_MAX))) {
        for (unsigned i = 0; i < run->n; i++) {
            CHECK(run->recs[i].id == newest[run->recs[i].page]);
            CHECK(!seen[run->recs[i].page]++);
        }
        dedup_fetch_settle(f, run->n);
        g_free(run);
    }
    for (unsigned page = 0; page < PAGES; page++) {
        CHECK(seen[page] == (newest[page] != 0));
    }
    CHECK(!stat64_get(&f->backlog));
}

static void storage_hangs(void)
{
    DedupFetch f;

    begin(&f);
    for (unsigned i = 0; i < 40 * PAGES / ELEMENT; i++) {
        SUB(element(&f));
        CHECK(looked_at <= 16 * ELEMENT);
        CHECK(stat64_get(&f.backlog) == f.inbox->len);
        CHECK(f.inbox->len < PAGES + PAGES / 8);
    }
    SUB(check_all_there(&f));
    end(&f);
}

/* They are taken away while a part of them has been looked at */
static void storage_comes_back(void)
{
    DedupFetch f;

    begin(&f);
    for (unsigned round = 0; round < 8; round++) {
        for (unsigned i = 0; i < (2 + round) * PAGES / ELEMENT; i++) {
            SUB(element(&f));
        }
        SUB(check_all_there(&f));
        CHECK(!f.trimmed && !f.inbox->len);
        memset(newest, 0, sizeof(newest));
    }
    end(&f);
}

int main(void)
{
    RUN(storage_hangs);
    RUN(storage_comes_back);
    return test_status;
}
