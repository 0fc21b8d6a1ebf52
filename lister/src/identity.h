/* SPDX-License-Identifier: Apache-2.0 */
/* By what the host can tell the disks apart: serial, addresses, size */
#ifndef IDENTITY_H
#define IDENTITY_H

#include "listing.h"

/*
 * Fills in all but the size of the disk "major:minor" from sysfs.  NULL when
 * it is a disk of this guest, else what it is instead.
 */
const char *identity_read(struct listing_disk *disk, unsigned major,
                          unsigned minor, enum listing_reason *reason);
/* A PCI path out of a path in sysfs; false: there is none */
bool identity_pci(const char *path, struct listing_disk *disk);

#endif
