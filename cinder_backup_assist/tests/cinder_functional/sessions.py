# SPDX-License-Identifier: Apache-2.0
"""Reads backups as the daemon does, and compares each byte."""

import io

from oslo_config import cfg

from cinder_backup_assist.service import limits
from cinder_backup_assist.service import metrics
from cinder_backup_assist.service import session
from cinder_backup_assist.store import drivers
from cinder_backup_assist.tests.cinder_functional import real_backups
from nova_dedup_migrate.backups import frames


class SessionTestCase(real_backups.BackupTestCase):

    def session(self, backups):
        self.metrics = metrics.Metrics()
        found = session.Session(
            drivers.BackupStore(cfg.CONF, self.context),
            list(reversed(backups)), None, limits.RateLimit(0), self.metrics)
        self.addCleanup(found.close)
        return found

    def frames(self, found):
        return frames.parse(
            _Joined(found.frames([(0, found.blocks.units)])).read,
            found.blocks.length, found.blocks.unit)

    def read(self, backups, contents, harm=lambda: None):
        """Read a volume after harm; return how many bytes are missing."""
        found = self.session(backups)
        harm()
        return self.compare(self.frames(found), contents)

    def compare(self, arriving, contents, after_first=None):
        missing, result = 0, bytearray(len(contents[-1]))
        for frame in arriving:
            end = frame.offset + frame.length
            if frame.kind == frames.MISSING:
                missing += frame.length
                # as if the volume had been read for it
                result[frame.offset:end] = contents[-1][frame.offset:end]
            else:
                result[frame.offset:end] = frame.data
            if after_first is not None:
                after_first()
                after_first = None
        self.assertTrue(contents[-1] == bytes(result))
        self.assertEqual(missing,
                         self.metrics.value('missing_bytes_total'))
        return missing


class _Joined(io.RawIOBase):
    """What a session yields, as a file."""

    def __init__(self, parts):
        super().__init__()
        self._parts = parts
        self._left = b''

    def read(self, size=-1):
        while len(self._left) < size:
            part = next(self._parts, None)
            if part is None:
                break
            self._left += part
        data, self._left = self._left[:size], self._left[size:]
        return data
