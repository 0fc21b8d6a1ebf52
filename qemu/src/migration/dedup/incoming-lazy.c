/*
 * Destination: records in post-copy
 *
 * The guest runs here, and each of its pages is either in place, for good, or
 * not there at all: who touches it then waits for it (userfaultfd).  So a
 * page must be placed in one go and only once, and what is there must never
 * be written again.  Four threads place pages: listen and preempt (content),
 * fault (what is discarded), and the fetcher.  All do it in
 * qemu_ufd_copy_ioctl(), which calls begin() and end() here:
 *
 *   lock       from begin() to end(); nothing in between waits for storage or
 *              the link
 *   received   QEMU's bitmap, set in between: a page that has its bit is not
 *              placed again.  It does not matter which side it came from, for
 *              a page has one content once the guest runs here.
 *   word       as before post-copy, for the fetcher and for what is still
 *              expected.  Content sets the received bit and then clears the
 *              word; a record sets the word and then looks at the bit: one of
 *              the two sees the other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/thread.h"
#include "../migration.h"
#include "../options.h"
#include "../postcopy-ram.h"
#include "../ram.h"
#include "incoming-int.h"

bool dedup_incoming_lazy;

static QemuMutex lock;

static void __attribute__((constructor)) lazy_init(void)
{
    qemu_mutex_init(&lock);
}

int dedup_incoming_listen(void)
{
    int ret = dedup_incoming_finish();

    if (ret || !dedup_in.announced || !dedup_in.lazy || dedup_in.refuse ||
        !migrate_postcopy_ram()) {
        return ret;
    }
    dedup_fetch_lazy(dedup_in.fetch);
    qatomic_set(&dedup_incoming_lazy, true);
    smp_mb();                   /* who sees it go on places lazily */
    qatomic_set(&dedup_in.stopped, false);
    return 0;
}

/* Of blocks with larger pages nothing is left out */
static DedupRam *table_of(RAMBlock *rb)
{
    DedupRam *dr = rb->dedup;

    return dr && dr->ids && qemu_ram_pagesize(rb) == DEDUP_PAGE_SIZE ? dr
                                                                     : NULL;
}

bool dedup_lazy_received(DedupRam *dr, uint64_t page)
{
    return ramblock_recv_bitmap_test_byte_offset(dr->rb,
                                                 page << DEDUP_PAGE_BITS);
}

bool dedup_lazy_begin(RAMBlock *rb, void *host)
{
    if (!table_of(rb)) {
        return true;
    }
    qemu_mutex_lock(&lock);
    if (ramblock_recv_bitmap_test(rb, host)) {
        qemu_mutex_unlock(&lock);
        return false;
    }
    return true;
}

void dedup_lazy_end(RAMBlock *rb, void *host)
{
    DedupRam *dr = table_of(rb);
    uint64_t page;

    if (!dr) {
        return;
    }
    qemu_mutex_unlock(&lock);
    page = ((uint8_t *)host - rb->host) >> DEDUP_PAGE_BITS;
    smp_mb();                   /* pairs with expect() */
    if (dedup_lazy_received(dr, page)) {
        dedup_incoming_forget(dr, page);
    }
}

bool dedup_lazy_place(const DedupFetchRecord *rec, const void *data)
{
    MigrationIncomingState *mis = migration_incoming_get_current();
    RAMBlock *rb = rec->dr->rb;
    void *host = rb->host + (rec->page << DEDUP_PAGE_BITS);

    if (dedup_inject.no_atomic_place) {
        memcpy(host, data, DEDUP_PAGE_SIZE);
        return true;
    }
    return postcopy_place_page(mis, host, (void *)data, rb) == 0;
}

int dedup_lazy_load(QEMUFile *f, int channel)
{
    if (!dedup_incoming_lazy || channel != RAM_CHANNEL_PRECOPY) {
        error_report("dedup: an element is not expected in post-copy");
        return -EINVAL;
    }
    return dedup_incoming_load(f);
}

void dedup_lazy_fault(RAMBlock *rb, ram_addr_t offset)
{
    DedupRam *dr = table_of(rb);
    uint32_t v;

    if (!dr || qatomic_read(&dedup_in.stopped)) {
        return;
    }
    v = qatomic_read(&dr->ids[offset >> DEDUP_PAGE_BITS]);
    if (v && !(v & (DEDUP_COPYING | DEDUP_MISSING))) {
        dedup_fetch_hurry(dedup_in.fetch, v);
    }
}
