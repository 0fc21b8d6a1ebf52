/*
 * Fuzz ANSWERS: ids stay within 32 bits
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include <stdlib.h>
#include "wire.h"

static void see(void *opaque, uint32_t first, uint32_t count,
                DedupAnswer status)
{
    (void)opaque;
    if (!count || (uint64_t)first + count > UINT32_MAX ||
        status > DEDUP_ANSWER_RESERVED) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t backlog, rate;

    dedup_decode_answers(data, size, &backlog, &rate, see, NULL);
    return 0;
}
