# SPDX-License-Identifier: Apache-2.0
import hashlib
import pathlib
import subprocess
import tempfile
import unittest

from nova_dedup_migrate_tempest_plugin import volume

MIB = 1 << 20


class GuestVolumeTest(unittest.TestCase):
    """The commands run in a shell of this machine, on a file."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name, 'device')
        self.path.write_bytes(bytes(4 * MIB))
        self.commands = []
        self.volume = volume.GuestVolume(self.run_command, self.path, 3)

    def run_command(self, command):
        self.commands.append(command)
        if 'drop_caches' in command:
            # not on a machine that others use
            return ''
        return subprocess.run(
            ['sh', '-ec', command], check=True, capture_output=True,
            text=True).stdout

    def test_writes_there_and_nowhere_else(self):
        self.volume.write(1, 1)
        data = self.path.read_bytes()
        self.assertEqual(4 * MIB, len(data))
        self.assertEqual(bytes(MIB), data[:MIB])
        self.assertEqual(bytes(2 * MIB), data[2 * MIB:])
        self.assertNotIn(bytes(64), data[MIB:2 * MIB])

    def test_checksum_is_of_the_disk(self):
        self.volume.write(0, 3)
        self.assertEqual(
            hashlib.sha256(self.path.read_bytes()[:3 * MIB]).hexdigest(),
            self.volume.checksum())
        self.assertTrue(any('drop_caches' in one for one in self.commands))

    def test_each_changed_byte_changes_it(self):
        self.volume.write(0, 2)
        before = self.volume.checksum()
        data = self.path.read_bytes()
        for place in (0, 2 * MIB - 1, 2 * MIB, 3 * MIB - 1):
            changed = bytearray(data)
            changed[place] ^= 1
            self.path.write_bytes(changed)
            self.assertNotEqual(before, self.volume.checksum(), place)
        self.path.write_bytes(data)
        self.assertEqual(before, self.volume.checksum())
