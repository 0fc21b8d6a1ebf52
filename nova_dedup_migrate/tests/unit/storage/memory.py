# SPDX-License-Identifier: Apache-2.0
"""A disk in memory with the methods of nbd.NBD that are used."""

import errno

import nbd

from nova_dedup_migrate.storage import extents


class Disk:
    """:param data: bytearray

    :ivar calls: (name, offset, length)
    :ivar zeros: (offset, length) that are reported as zeros
    :ivar absent: (offset, length) that are not in the top image
    :ivar bad: offsets of sectors that cannot be read
    """

    def __init__(self, data):
        self.data = data
        self.calls = []
        self.zeros = []
        self.absent = []
        self.bad = []
        self.ready = True

    def get_size(self):
        return len(self.data)

    def aio_is_ready(self):
        return self.ready

    def can_meta_context(self, name):
        return True

    def pread(self, length, offset):
        self.calls.append(('pread', offset, length))
        if any(offset <= bad < offset + length for bad in self.bad):
            raise nbd.Error('pread', errno.EIO)
        return bytearray(self.data[offset:offset + length])

    def pwrite(self, data, offset):
        self.calls.append(('pwrite', offset, len(data)))
        self.data[offset:offset + len(data)] = data

    def block_status(self, length, offset, callback):
        self.calls.append(('block_status', offset, length))
        for context, ranges, inside, outside in (
                (nbd.CONTEXT_BASE_ALLOCATION, self.zeros,
                 nbd.STATE_ZERO | nbd.STATE_HOLE, 0),
                (extents.DEPTH, self.absent, 2, 1)):
            callback(context, offset, list(self._entries(
                offset, offset + length, ranges, inside, outside)), None)

    @staticmethod
    def _entries(at, end, ranges, inside, outside):
        while at < end:
            within = [start + length for start, length in ranges
                      if start <= at < start + length]
            later = [start for start, _ in ranges if start > at]
            stop = min([end, *within, *([] if within else later)])
            yield stop - at
            yield inside if within else outside
            at = stop
