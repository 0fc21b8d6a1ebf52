# SPDX-License-Identifier: Apache-2.0
"""A volume of a real QEMU that is read, filled from a backup and mirrored."""

import contextlib
import pathlib
import threading
import time
from unittest import mock

from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.swaps import fill
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import reading
from nova_dedup_migrate.swaps import turns
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.storage.sources import test_backup

_LIMITS = rebuild.Limits(seconds=60, reserve=0)
NAME = 'instance', 'vda'


class VolumeCase(case.SeedCase):

    def setUp(self):
        super().setUp()
        self.one = self.rig()
        self.image = pathlib.Path(self.one.image[0])
        self.target = pathlib.Path(self.one.target_image[0])
        self.records = watches.Records(str(self.directory / 'watches'))
        self.turns = turns.Turns()
        self.reader = reading.Reader(
            self.records, self.turns, lambda instance: self.one.source,
            lambda: 1e9, threading.Event())

    def watch(self):
        """Begin to record; return the record."""
        (device,) = self.one.source.disks().values()
        return self.records.begin(self.one.source, device, *NAME, 'volume')

    def read(self):
        """Have the reader read all that is to be read."""
        self.reader.work(time.monotonic() + 60)

    def known(self, record):
        """Open what is known."""
        return contextlib.closing(fingerprints.Fingerprints(
            self.records.fingerprints(*NAME), self.of(record)))

    def clear(self, record):
        """Return how many granules are clear; the last one is short."""
        return case.GRANULES - len(self.one.dirty(self.of(record)))

    def of(self, record):
        return watches.of(self.one.source, record.token)

    def backup(self, content=None):
        """Return a backup of the disk as it is now, or of other content."""
        return test_backup.Reader(self.image.read_bytes() if content is None
                                  else bytes(content))

    def fill(self, record, reader, others=()):
        """Fill the target while nothing else has it open."""
        source = backup_source.BackupSource(reader)
        self.addCleanup(source.close)
        self.one.destination.qmp('block-export-del', id='target')
        self.one.destination.qmp('blockdev-del', **{
            'node-name': 'disk0-format'})
        try:
            with self.known(record) as known, mock.patch.object(
                    self.one.source, 'arm_disk', self._armed(
                        self.one.source.arm_disk)):
                self.records.remove(*NAME)
                return fill.fill(
                    self.one.source, self.of(record), known, source,
                    writer.Image(str(self.target), 'raw'),
                    str(self.directory / 'journal'), _LIMITS, str(self.binary),
                    others)
        finally:
            self.one.destination.qmp('blockdev-add', **{
                'driver': 'raw', 'node-name': 'disk0-format',
                'file': {'driver': 'file', 'filename': str(self.target)}})
            self.one.destination.qmp('block-export-add', **{
                'type': 'nbd', 'id': 'target', 'node-name': 'disk0-format',
                'name': 'target', 'writable': True})

    def _armed(self, arm):
        """Return arm_disk that notes what the mirror will not copy."""
        def call(token, proven, *canary):
            dirty = self.one.dirty(self.one.query(token))
            self.left_out = [
                number for number in range(case.GRANULES)
                if proven[number // 8] >> number % 8 & 1
                and number not in dirty]
            return arm(token, proven, *canary)

        return call

    def wrong(self):
        """Return the granules that differ and that nobody will copy.

        QEMU compares some of them itself, by chance, and copies all if one
        differs: so a mirror would not always show them.
        """
        here, there = self.image.read_bytes(), self.target.read_bytes()
        return [number for number in self.left_out
                if here[number * rig.GRANULE:(number + 1) * rig.GRANULE]
                != there[number * rig.GRANULE:(number + 1) * rig.GRANULE]]
