/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds files that may be cached without the kernel's structures: those
 * that are open or mapped in processes, then the trees of the mounts.
 *
 * A tree is walked as far as the kernel knows it by heart, where it can be
 * told to (openat2 with RESOLVE_CACHED, Linux 5.12): a file that is cached
 * is found by names that are.  Else the limit of disk reads ends the walk.
 */
#ifndef WALK_H
#define WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "mounts.h"
#include "resident.h"
#include "scan.h"

#define WALK_MAX_OPEN 2048
#define WALK_MAX_DEPTH 64

struct walk {
    struct scan *scan;
    const struct mounts *mounts;
    struct resident resident;
    unsigned opened;
    int open[WALK_MAX_OPEN];    /* found in processes */
    int no_cached;              /* openat2 does not know RESOLVE_CACHED */
};

/* With privileges: opens what processes have open. */
void walk_processes(struct walk *w);
/* Without: adds all files found to the scan's runs, sorted by memory. */
void walk_files(struct walk *w);

#endif
