/* SPDX-License-Identifier: Apache-2.0 */
/* Finds requests in what comes by a channel */
#ifndef REQUEST_H
#define REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "listing.h"

/* What has arrived and is not yet a frame */
struct request_input {
    uint8_t data[LISTING_HEADER_LEN + LISTING_REQUEST_LEN];
    size_t used;
};

/* Takes bytes as they come.  True: a good request has come, the last one of
 * these bytes.  What is none is passed over. */
bool request_feed(struct request_input *in, const uint8_t *bytes,
                  size_t count, struct listing_request *request);

#endif
