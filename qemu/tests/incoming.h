/*
 * incoming.c and incoming-*.c with all they call replaced, for tests and
 * fuzzers
 *
 * The files themselves are included, so that their state can be looked at.
 * What arrives is put into a buffer in place of the stream; what is to be
 * fetched goes to incoming_queue(), which each program defines.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef INCOMING_H
#define INCOMING_H

#include "../src/migration/dedup/incoming.c"
#include "../src/migration/dedup/incoming-hints.c"
#include "../src/migration/dedup/incoming-load.c"
#include "../src/migration/dedup/incoming-lazy.c"
#include "../src/migration/dedup/compress-load.c"

#define RAM_PAGES   64
#define DISKS       2

void incoming_queue(DedupFetch *f, const DedupFetchRecord *recs, unsigned n);
void incoming_answered(uint32_t id, DedupAnswer answer);

/* RAM block "ram", and "rom", which has no table */
static RAMBlock blocks[2] = { { .idstr = "ram" }, { .idstr = "rom" } };
static DedupRam ram = { .rb = &blocks[0], .pages = RAM_PAGES };
static bool received[RAM_PAGES];
static bool quiet = true;
static bool multifd = true;

DedupInject dedup_inject;

static void incoming_memory(void *host)
{
    for (int i = 0; i < 2; i++) {
        blocks[i].host = host;
        blocks[i].used_length = RAM_PAGES * 4096;
        blocks[i].max_length = RAM_PAGES * 4096;
    }
    blocks[0].dedup = &ram;
}

/* The stream */

struct QEMUFile {
    const uint8_t *p, *end;
    bool short_read;
};

size_t qemu_get_buffer(QEMUFile *f, uint8_t *buf, size_t size)
{
    size_t n = MIN(size, f->end - f->p);

    if (n) {
        memcpy(buf, f->p, n);
    }
    f->p += n;
    f->short_read = f->short_read || n < size;
    return n;
}

static unsigned get(QEMUFile *f, size_t n)
{
    uint8_t b[4] = { 0 };
    unsigned v = 0;

    qemu_get_buffer(f, b, n);
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | b[i];
    }
    return v;
}

unsigned qemu_get_be16(QEMUFile *f)
{
    return get(f, 2);
}

unsigned qemu_get_be32(QEMUFile *f)
{
    return get(f, 4);
}

int qemu_file_get_error(QEMUFile *f)
{
    return f->short_read ? -EIO : 0;
}

/* How often the source would be told that it failed */
static int incoming_failures;

void qemu_file_set_error(QEMUFile *f, int error)
{
    (void)f;
    g_assert(error < 0);
    incoming_failures++;
}

int qemu_file_shutdown(QEMUFile *f)
{
    (void)f;
    return 0;
}

static inline void incoming_greet(void)
{
    dedup_incoming_hello(migration_incoming_get_current());
}

static int incoming_element(unsigned type, const uint8_t *buf, size_t len)
{
    g_autofree uint8_t *all = g_malloc(6 + len);
    QEMUFile f = { .p = all, .end = all + 6 + len };

    dedup_put_be(all, type, 2);
    dedup_put_be(all + 2, len, 4);
    if (len) {
        memcpy(all + 6, buf, len);
    }
    return dedup_incoming_load(&f);
}

/* What SETUP says besides */
static unsigned incoming_flags = DEDUP_SETUP_TRACKED;

/* Both blocks, a shared disk and one with an own copy; its length */
static size_t incoming_setup_payload(uint8_t *buf)
{
    uint8_t *p = dedup_put_be(buf, DEDUP_WIRE_VERSION, 2);

    p = dedup_put_be(p, incoming_flags, 2);
    memset(p, 7, DEDUP_KEY_LEN);
    p = dedup_put_be(p + DEDUP_KEY_LEN, 0, 8);
    p = dedup_put_be(p, 0, 4);
    p = dedup_put_be(p, 2, 2);
    for (int i = 0; i < 2; i++) {
        *p++ = 3;
        memcpy(p, blocks[i].idstr, 3);
        p = dedup_put_be(p + 3, RAM_PAGES * 4096, 8);
    }
    p = dedup_put_be(p, DISKS, 2);
    for (int i = 0; i < DISKS; i++) {
        *p++ = i;
        p = dedup_put_be(p, 5, 2);
        memcpy(p, i ? "/vdb0" : "/vda0", 5);
        p += 5;
    }
    return p - buf;
}

static inline int incoming_setup(void)
{
    uint8_t buf[256];

    incoming_greet();
    return incoming_element(DEDUP_ELEMENT_SETUP, buf,
                            incoming_setup_payload(buf));
}

static inline int incoming_epoch(uint32_t epoch)
{
    uint8_t buf[4];

    dedup_put_be(buf, epoch, 4);
    return incoming_element(DEDUP_ELEMENT_EPOCH, buf, sizeof(buf));
}

/* A batch with pages of @raw, one after the other */
static inline int incoming_batch(unsigned block, const uint64_t *pages,
                                 unsigned n, const uint8_t *raw)
{
    g_autofree uint8_t *buf = g_malloc(DEDUP_BATCH_PAYLOAD);
    g_autofree uint8_t *frame = g_malloc(DEDUP_BATCH_RAW);
    DedupBatch b = { .block = block, .n = n, .frame = frame };
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    size_t len;

    memcpy(b.pages, pages, n * sizeof(*pages));
    b.len = dedup_batch_deflate(ctx, 1, false, raw, n, frame);
    ZSTD_freeCCtx(ctx);
    g_assert(b.len);
    len = dedup_batch_header(buf, &b);
    memcpy(buf + len, frame, b.len);
    return incoming_element(DEDUP_ELEMENT_BATCH, buf, len + b.len);
}

/* What QEMU would do */

bool migrate_multifd(void)
{
    return multifd;
}

static MigrationIncomingState state = { .state = MIGRATION_STATUS_ACTIVE };

MigrationIncomingState *migration_incoming_get_current(void)
{
    return &state;
}

int migrate_send_rp_dedup(MigrationIncomingState *mis, uint16_t len,
                          void *data)
{
    (void)mis, (void)len, (void)data;
    return 0;
}

RAMBlock *qemu_ram_block_by_name(const char *name)
{
    for (int i = 0; i < 2; i++) {
        if (!strcmp(name, blocks[i].idstr)) {
            return &blocks[i];
        }
    }
    return NULL;
}

void ramblock_recv_bitmap_set_offset(RAMBlock *rb, uint64_t offset)
{
    (void)rb;
    qatomic_set(&received[offset >> 12], true);
}

bool ramblock_recv_bitmap_test_byte_offset(RAMBlock *rb, uint64_t offset)
{
    (void)rb;
    return qatomic_read(&received[offset >> 12]);
}

bool ramblock_recv_bitmap_test(RAMBlock *rb, void *host)
{
    return ramblock_recv_bitmap_test_byte_offset(rb,
                                                 (uint8_t *)host - rb->host);
}

/* As QEMU with the hooks; what the kernel would refuse is a failure */
static int incoming_twice;
static int incoming_ufd_error;

int postcopy_place_page(MigrationIncomingState *mis, void *host, void *from,
                        RAMBlock *rb)
{
    uint64_t offset = (uint8_t *)host - rb->host;
    int ret = incoming_ufd_error;

    (void)mis;
    if (!dedup_incoming_place_begin(rb, host)) {
        return 0;
    }
    if (!ret) {
        if (received[offset >> 12]) {
            qatomic_inc(&incoming_twice);
        }
        memcpy(host, from, 4096);
        ramblock_recv_bitmap_set_offset(rb, offset);
    }
    dedup_incoming_place_end(rb, host);
    return ret;
}

void error_report(const char *fmt, ...)
{
    va_list ap;

    if (!quiet) {
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
    }
}

/* What the rest of migration/dedup would do */

struct DedupFetch {
    unsigned disks;
    uint64_t backlog;
};

DedupRam *dedup_ram_get(RAMBlock *rb)
{
    return rb->dedup;
}

void dedup_track(bool enable)
{
    (void)enable;
}

/* The hints that were set */
static DedupHint incoming_words[RAM_PAGES];

void dedup_hint_set(DedupRam *dr, uint64_t page, unsigned slot,
                    uint64_t sector, uint16_t fingerprint)
{
    g_assert(dr == &ram && page < RAM_PAGES && slot);
    incoming_words[page] = (DedupHint) {
        .slot = slot, .sector = sector, .fingerprint = fingerprint,
    };
}

/* The guest's disk, in slot 3; no other one exists */
#define INCOMING_DISK   "/vda0"
#define INCOMING_SLOT   3

BlockBackend *dedup_blk_by_path(const char *path)
{
    return strcmp(path, INCOMING_DISK) ? NULL : (BlockBackend *)&ram;
}

unsigned dedup_slot_of(BlockBackend *blk)
{
    return INCOMING_SLOT;
}

DedupFetch *dedup_fetch_new(const uint8_t *key)
{
    (void)key;
    return g_new0(DedupFetch, 1);
}

bool dedup_fetch_add_disk(DedupFetch *f, char *path, DedupCopy copy)
{
    (void)copy;
    f->disks++;
    g_free(path);
    return true;
}

void dedup_fetch_limit(DedupFetch *f, uint64_t bytes, uint32_t reads)
{
    (void)f, (void)bytes, (void)reads;
}

void dedup_fetch_halt(DedupFetch *f)
{
    (void)f;
}

DedupRefusedDiskList *dedup_fetch_refused(DedupFetch *f)
{
    (void)f;
    return NULL;
}

unsigned dedup_fetch_disks(DedupFetch *f)
{
    return f->disks;
}

bool dedup_fetch_add_extent(DedupFetch *f, unsigned disk,
                            const DedupExtent *e)
{
    return disk < f->disks && e->len;
}

void dedup_fetch_lazy(DedupFetch *f)
{
    (void)f;
}

/* The id a vCPU waits for */
static uint32_t incoming_hurried;

void dedup_fetch_hurry(DedupFetch *f, uint32_t id)
{
    (void)f;
    incoming_hurried = id;
}

void dedup_fetch_start(DedupFetch *f)
{
    (void)f;
}

void dedup_fetch_add(DedupFetch *f, const DedupFetchRecord *recs, unsigned n)
{
    incoming_queue(f, recs, n);
}

/* What a test says were superseded records */
static uint64_t incoming_trimmable;

void dedup_fetch_trim(DedupFetch *f)
{
    f->backlog -= incoming_trimmable;
    incoming_trimmable = 0;
}

uint64_t dedup_fetch_backlog(DedupFetch *f)
{
    return qatomic_read(&f->backlog);
}

void dedup_fetch_query(DedupFetch *f, DedupIncomingInfo *info)
{
    info->backlog = dedup_fetch_backlog(f);
}

struct DedupAnswers {
    char unused;
};

DedupAnswers *dedup_answers_new(DedupFetch *f)
{
    (void)f;
    return g_new0(DedupAnswers, 1);
}

void dedup_answers_add(DedupAnswers *a, uint32_t id, DedupAnswer answer)
{
    (void)*(volatile char *)&a->unused;         /* it must still be there */
    incoming_answered(id, answer);
}

void dedup_answers_free(DedupAnswers *a)
{
    g_free(a);
}

#endif
