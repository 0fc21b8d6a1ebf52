/*
 * Freeing what is large, in a thread of its own
 *
 * To give back the tables of a guest of 64 GiB takes milliseconds, and most
 * of what frees them holds the BQL: notifiers, bottom halves, even callbacks
 * of RCU.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/thread.h"
#include "aside.h"

typedef struct Aside {
    void (*free)(void *);
    void *what;
} Aside;

static void *aside_thread(void *opaque)
{
    g_autofree Aside *a = opaque;

    a->free(a->what);
    return NULL;
}

void dedup_aside(void (*free)(void *), void *what)
{
    Aside *a = g_new(Aside, 1);
    QemuThread thread;

    a->free = free;
    a->what = what;
    qemu_thread_create(&thread, "dedup-free", aside_thread, a,
                       QEMU_THREAD_DETACHED);
}

GPtrArray *dedup_rubbish_new(void)
{
    return g_ptr_array_new_with_free_func(g_free);
}

static void unref(void *rubbish)
{
    g_ptr_array_unref(rubbish);
}

void dedup_rubbish_free(GPtrArray *rubbish)
{
    dedup_aside(unref, rubbish);
}
