# SPDX-License-Identifier: Apache-2.0
import pathlib
import subprocess
import tempfile
import types
import unittest

from nova_dedup_migrate_tempest_plugin import memory


class GuestMemoryTest(unittest.TestCase):
    """The commands run in a shell of this machine."""

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.file = pathlib.Path(directory.name, 'file')
        self.memory = pathlib.Path(directory.name, 'memory')
        self.file.mkdir()
        self.memory.mkdir()
        self.commands = []
        self.guest = memory.fill(self.run_command, types.SimpleNamespace(
            file_directory=self.file, memory_directory=self.memory,
            file_size=2, memory_size=1))

    def run_command(self, command):
        self.commands.append(command)
        if 'drop_caches' in command:
            # not on a machine that others use
            return ''
        return subprocess.run(
            ['sh', '-ec', command], check=True, capture_output=True,
            text=True).stdout

    def test_fills_and_verifies(self):
        self.assertEqual([2 << 20, 1 << 20], [
            path.stat().st_size for directory in (self.file, self.memory)
            for path in directory.iterdir()])
        self.guest.verify()
        self.assertEqual(1, sum('drop_caches' in command
                                for command in self.commands))

    def test_each_changed_byte_is_found(self):
        for directory in (self.file, self.memory):
            path, = directory.iterdir()
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            self.assertRaisesRegex(memory.WrongMemory, 'Memory of the guest',
                                   self.guest.verify)
            path.write_bytes(data)
        self.guest.verify()

    def test_a_disk_that_is_not_what_the_page_cache_was(self):
        path, = self.file.iterdir()

        def run(command):
            if 'drop_caches' in command:
                path.write_bytes(b'another content')
            return self.run_command(command)

        guest = memory.GuestMemory(run, self.guest.sums)
        self.assertRaisesRegex(memory.WrongMemory, 'A disk of the guest',
                               guest.verify)
