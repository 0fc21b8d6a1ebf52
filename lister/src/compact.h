/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payload of a COMPACT frame, see listing-format.h
 */
#ifndef COMPACT_H
#define COMPACT_H

#include <stdbool.h>
#include <stdint.h>

#include "listing.h"

/* Whether @e, behind the others, may be in the frame that begins with @first;
 * there are fewer than LISTING_MAX_COMPACT_EXTENTS in it */
bool compact_takes(const struct listing_extent *first,
                   const struct listing_extent *e);
/* Returns the length.  Sorts the extents, which ascend by address. */
uint32_t compact_encode(uint8_t *payload, struct listing_extent *e,
                        unsigned count);

#endif
