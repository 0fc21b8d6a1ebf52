/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <string.h>

#define FRAME (LISTING_HEADER_LEN + LISTING_REQUEST_LEN)

static bool is_request(const uint8_t *frame, struct listing_request *request)
{
    uint16_t type;
    uint32_t number;
    long length = listing_parse_header(frame, &type, &number);

    if (length != LISTING_REQUEST_LEN || type != LISTING_REQUEST ||
        listing_parse_request(frame + LISTING_HEADER_LEN, length, request)) {
        return false;
    }
    /* Of a later host it may be another one, which says no less */
    request->compact = number >= LISTING_READS_COMPACT;
    return true;
}

bool request_feed(struct request_input *in, const uint8_t *bytes, size_t count,
                struct listing_request *request)
{
    struct listing_request one;
    bool found = false;

    while (count--) {
        in->data[in->used++] = *bytes++;
        if (in->used < FRAME) {
            continue;
        }
        if (is_request(in->data, &one)) {
            *request = one;
            found = true;
            in->used = 0;
        } else {
            memmove(in->data, in->data + 1, --in->used);
        }
    }
    return found;
}
