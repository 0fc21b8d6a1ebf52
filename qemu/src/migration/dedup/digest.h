/*
 * Digests of guest pages
 *
 * The strong digest is SipHash-2-4 with 128 bits of output (Aumasson and
 * Bernstein, INDOCRYPT 2012) under a key drawn for each migration.  It is a
 * pseudo-random function: a guest that fills its disk or memory does not
 * know the key and cannot look for two blocks with one digest, and an
 * accident has one chance in 2^128.
 *
 * The fingerprint is a sample of a page, good only for dropping hints of
 * pages that changed since the hint was taken.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_DIGEST_H
#define MIGRATION_DEDUP_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* SipHash-2-4-128 of @len bytes (a multiple of 8) under the 16-byte @key */
void dedup_digest(const uint8_t *key, const void *data, size_t len,
                  uint8_t *digest);

/* Never 0, which stands for "not taken" */
uint16_t dedup_fingerprint(const void *page);

#endif
