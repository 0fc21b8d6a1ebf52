/*
 * How long QEMU's locks are held for us, see hold.h
 *
 * The time is the processor's, for a busy machine must not count, and that
 * on the clock.  Beside it stands how many steps it took, which is the same
 * on each machine.  With the fault "hold-limit-us" QEMU aborts in the piece
 * that takes longer.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/lockable.h"
#include "qemu/thread.h"
#include "qemu/timer.h"
#include "hold.h"

#ifdef DEDUP_FAULTY

static QemuMutex lock;
static DedupHoldSite *sites;            /* under @lock, and what they hold */
static __thread DedupHold *current;

static void __attribute__((constructor)) hold_init(void)
{
    qemu_mutex_init(&lock);
}

int64_t dedup_hold_cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

DedupHold *dedup_hold_begin(DedupHold *h, DedupHoldSite *site)
{
    *h = (DedupHold) {
        .site = site, .outer = current,
        .cpu_ns = dedup_hold_cpu_ns(), .wall_ns = get_clock(),
    };
    current = h;
    return h;
}

void dedup_hold_steps(uint64_t n)
{
    if (current) {
        current->steps += n;
    }
}

void dedup_hold_note(DedupHoldSite *site, uint64_t steps, int64_t cpu_ns,
                     int64_t wall_ns)
{
    WITH_QEMU_LOCK_GUARD(&lock) {
        if (!site->listed) {
            site->listed = true;
            site->next = sites;
            sites = site;
        }
        site->holds++;
        site->steps = MAX(site->steps, steps);
        site->cpu_ns = MAX(site->cpu_ns, cpu_ns);
        site->wall_ns = MAX(site->wall_ns, wall_ns);
    }
    if (dedup_inject.hold_limit_us &&
        cpu_ns > dedup_inject.hold_limit_us * 1000LL) {
        g_printerr("dedup: '%s' held '%s' for %" PRId64 " us, %" PRIu64
                   " steps\n", site->name, site->lock, cpu_ns / 1000, steps);
        abort();
    }
}

void dedup_hold_end(DedupHold **held)
{
    DedupHold *h = *held;

    assert(current == h);               /* else it has yielded in between */
    current = h->outer;
    dedup_hold_steps(h->steps);
    dedup_hold_note(h->site, h->steps, dedup_hold_cpu_ns() - h->cpu_ns,
                    get_clock() - h->wall_ns);
}

char *dedup_hold_report(void)
{
    GString *s = g_string_new(NULL);

    QEMU_LOCK_GUARD(&lock);
    for (DedupHoldSite *site = sites; site; site = site->next) {
        g_string_append_printf(
            s, "hold: %s %s: %" PRIu64 " times, %" PRIu64 " steps, %" PRId64
            " us, %" PRId64 " us on the clock\n", site->lock, site->name,
            site->holds, site->steps, site->cpu_ns / 1000,
            site->wall_ns / 1000);
    }
    return g_string_free(s, false);
}

#endif
