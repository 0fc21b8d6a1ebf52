/* SPDX-License-Identifier: Apache-2.0 */
/* One listing, from opening what is needed to the last frame */
#ifndef LISTER_H
#define LISTER_H

#include <stdbool.h>
#include <stdint.h>

#include "listing-format.h"

struct lister_options {
    uint64_t nonce;
    bool compact;               /* write COMPACT frames */
    uint64_t from;                      /* guest-physical address */
    uint32_t limit_ms, memory_kib, extents, read_kib;
    /* For tests */
    bool keep_privileges;
    uint32_t runs;                      /* room for so many, 0: all */
};

/* Returns the exit status; from here on the process has no privileges. */
int lister_run(int fd, const struct lister_options *options);

#endif
