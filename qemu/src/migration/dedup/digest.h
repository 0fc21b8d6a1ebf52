/*
 * Digests of guest pages
 *
 * The strong digest is a tree of two levels over SipHash-2-4 with 128 bits of
 * output (Aumasson and Bernstein, INDOCRYPT 2012), under a key drawn for each
 * migration.  The page is seen as rows of DEDUP_LANES words of 64 bits.
 *
 *   leaf i  = SipHash(key, column i as bytes, i as a little-endian word)
 *   digest  = SipHash(key, leaf 0, leaf 1, ... leaf 7)
 *
 * A leaf's message (520 bytes) is never as long as the root's (128 bytes), so
 * the tree is a pseudo-random function as SipHash is: a guest that fills its
 * disk or memory does not know the key and cannot look for two blocks with
 * one digest, and an accident has one chance in 2^128 or so.
 *
 * In one SipHash each step waits for the one before, which leaves most of a
 * processor idle; the leaves are computed side by side.
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

#define DEDUP_LANES 8

/* 16 bytes, of a page of 4096 bytes, under the 16-byte @key */
void dedup_digest(const uint8_t *key, const void *page, uint8_t *digest);

/* SipHash-2-4-128 of @len bytes (a multiple of 8) under the 16-byte @key */
void dedup_siphash(const uint8_t *key, const void *data, size_t len,
                   uint8_t *digest);

/*
 * The implementations of the leaves, for tests: 0 runs everywhere; NULL where
 * this processor cannot run it.  The leaves follow each other in @leaves.
 */
typedef void DedupLeaves(const uint8_t *key, const void *page,
                         uint8_t *leaves);
#define DEDUP_LEAVES_IMPLS 3
DedupLeaves *dedup_leaves_impl(unsigned n);

/* Never 0, which stands for "not taken" */
uint16_t dedup_fingerprint(const void *page);

#endif
