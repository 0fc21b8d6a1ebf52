#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Print test_digest.c's vectors, computed apart from the C code.

SipHash-2-4 with 128 bits of output, written from the description in
Aumasson and Bernstein, "SipHash: a fast short-input PRF" (INDOCRYPT 2012),
and, for the 128-bit output, its authors' reference implementation; and the
tree of digest.h over it.
"""

MASK = (1 << 64) - 1


def siphash128(key, message):
    """:returns: 16 bytes"""
    k0 = int.from_bytes(key[:8], 'little')
    k1 = int.from_bytes(key[8:], 'little')
    v = [k0 ^ int.from_bytes(b'somepseu', 'big'),
         k1 ^ int.from_bytes(b'dorandom', 'big') ^ 0xee,
         k0 ^ int.from_bytes(b'lygenera', 'big'),
         k1 ^ int.from_bytes(b'tedbytes', 'big')]

    def rotate(i, n):
        v[i] = (v[i] << n | v[i] >> (64 - n)) & MASK

    def half(a, b, m, n):
        v[a] = (v[a] + v[b]) & MASK
        rotate(b, n)
        v[b] ^= v[a]
        if m:
            rotate(a, 32)

    def rounds(count):
        for _ in range(count):
            half(0, 1, True, 13)
            half(2, 3, False, 16)
            half(0, 3, False, 21)
            half(2, 1, True, 17)

    padded = message + bytes(7 - len(message) % 8)
    padded += bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at:at + 8], 'little')
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xee
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    rounds(4)
    second = v[0] ^ v[1] ^ v[2] ^ v[3]
    return first.to_bytes(8, 'little') + second.to_bytes(8, 'little')


def page_digest(key, page):
    """:returns: 16 bytes; page has 4096"""
    leaves = []
    for lane in range(8):
        column = b''.join(page[at:at + 8]
                          for at in range(lane * 8, 4096, 64))
        leaves.append(siphash128(key, column + lane.to_bytes(8, 'little')))
    return siphash128(key, b''.join(leaves))


if __name__ == '__main__':
    for length in (*range(0, 64, 8), 512, 4096):
        text = bytes(i % 256 for i in range(length))
        print('        { %d, "%s" },'
              % (length, siphash128(bytes(range(16)), text).hex()))
    for number in range(4):
        text = bytes((i * (number + 1) >> number) % 256 for i in range(4096))
        print('        "%s",' % page_digest(bytes(range(16)), text).hex())
