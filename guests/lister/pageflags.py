# SPDX-License-Identifier: Apache-2.0
"""What a kernel says of its pages in /proc/kpageflags.

A number of 64 bits a page; bits as in Linux,
include/uapi/linux/kernel-page-flags.h, but RESERVED, fs/proc/page.c.
"""

import collections

PAGE = 4096
UPTODATE, DIRTY, LRU, SLAB = 1 << 3, 1 << 4, 1 << 5, 1 << 7
WRITEBACK, BUDDY, ANON, SWAPBACKED = 1 << 8, 1 << 10, 1 << 12, 1 << 14
TAIL, PGTABLE, RESERVED = 1 << 16, 1 << 26, 1 << 32
#: Of a page with several of them the first counts.
_KINDS = (
    (RESERVED, 'reserved: kernel, page structures'), (BUDDY, 'free'),
    (SLAB, 'slab'), (PGTABLE, 'page tables'), (ANON, 'anonymous'),
    (SWAPBACKED, 'tmpfs'), (DIRTY | WRITEBACK, 'page cache, dirty'),
    (LRU, 'page cache'))
_OTHER = 'other of the kernel'


def kind(flags):
    """Return what a page is, for people."""
    return next((name for bits, name in _KINDS if flags & bits), _OTHER)


def rest(memory, flags, listed):
    """Count what a listing leaves to be sent.

    :param memory: bytes of the guest's RAM, from page 0 on
    :param flags: a number for each page
    :param listed: set of page numbers
    :returns: Counter, from kind() to bytes of pages that are not zero
    """
    zero = bytes(PAGE)
    view = memoryview(memory)
    found = collections.Counter()
    for number, value in zip(range(len(memory) // PAGE), flags,
                             strict=False):
        if number not in listed and view[
                number * PAGE:(number + 1) * PAGE] != zero:
            found[kind(value)] += PAGE
    return found
