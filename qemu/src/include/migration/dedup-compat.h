/*
 * What differs between the releases of QEMU that migration/dedup is built
 * in: all of it is here, so that no other file of ours looks at a version.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_COMPAT_H
#define MIGRATION_DEDUP_COMPAT_H

/* 10.1 moved what is about the system from exec/ */
#if __has_include("system/ramblock.h")
#include "system/address-spaces.h"
#include "system/memory.h"
#include "system/ramblock.h"
#else
#include "exec/address-spaces.h"
#include "exec/memory.h"
#include "exec/ramblock.h"
#endif

/*
 * Whether the end of post-copy would wait for the destination's devices:
 * since 10.2 the source's migration thread then serves no request for a page.
 * A macro, so that only who uses it needs migration.h.
 */
#if QEMU_VERSION_MAJOR > 10 || \
    (QEMU_VERSION_MAJOR == 10 && QEMU_VERSION_MINOR >= 2)
#define dedup_postcopy_waits_for_devices() \
    (migrate_get_current()->state == MIGRATION_STATUS_POSTCOPY_DEVICE && \
     !qatomic_read(&migrate_get_current()->postcopy_package_loaded))
#else
#define dedup_postcopy_waits_for_devices() false
#endif

#endif
