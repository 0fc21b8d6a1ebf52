/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks by one page whose place is known, of the lister's own program, that
 * page structures are read rightly: before another method is out of reach.
 */
#ifndef PROBE_H
#define PROBE_H

#include <stdbool.h>

#include "kernel.h"
#include "owners.h"

bool probe(const struct kernel *k, struct owners *o);

#endif
