/* SPDX-License-Identifier: Apache-2.0 */
/* Software RAID (md): which member of a RAID1 has the array's data, and where
 */
#ifndef MIRROR_H
#define MIRROR_H

#include <stdbool.h>
#include <stdint.h>

#define MIRROR_WHY 96

struct mirror_member {
    unsigned major, minor;
    uint64_t offset;            /* bytes, of the array's data on the member */
};

/*
 * The member in the lowest slot whose content is that of the array.  Returns
 * false if there is none or the array is no RAID1, and `why` (MIRROR_WHY
 * bytes) has the reason.  From sysfs, as Documentation/admin-guide/md.rst of
 * Linux describes it.
 */
bool mirror_member(unsigned major, unsigned minor,
                   struct mirror_member *member, char *why);

#endif
