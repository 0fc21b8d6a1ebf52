/*
 * Freeing what is large, in a thread of its own
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_ASIDE_H
#define MIGRATION_DEDUP_ASIDE_H

#include <glib.h>

/* @free(@what), soon; nobody else has it, and it needs no lock */
void dedup_aside(void (*free)(void *), void *what);

/* Likewise, for a number of pointers, each of which g_free() frees */
GPtrArray *dedup_rubbish_new(void);
void dedup_rubbish_free(GPtrArray *rubbish);

/* *@place becomes NULL */
#define dedup_rubbish_add(rubbish, place)                               \
    do {                                                                \
        g_ptr_array_add(rubbish, *(place));                             \
        *(place) = NULL;                                                \
    } while (0)

#endif
