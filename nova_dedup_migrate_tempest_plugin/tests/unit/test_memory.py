# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import os
import pathlib
import re
import signal
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
            file_size=2, memory_size=1, anonymous_size=1))
        self.pid = int(self.guest.holder.pid)
        self.addCleanup(self.end_holder)

    def run_command(self, command):
        self.commands.append(command)
        if 'drop_caches' in command:
            # not on a machine that others use
            return ''
        return subprocess.run(
            ['sh', '-ec', command], check=True, capture_output=True,
            text=True).stdout

    def end_holder(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def files(self):
        return [path for directory in (self.file, self.memory)
                for path in directory.iterdir() if path.is_file()]

    def test_fills_and_verifies(self):
        self.assertEqual([2 << 20, 1 << 20],
                         [path.stat().st_size for path in self.files()])
        self.assertRegex(self.guest.anonymous, '^[0-9a-f]{64} ')
        self.guest.verify()
        self.assertEqual(1, sum('drop_caches' in command
                                for command in self.commands))

    def test_each_changed_byte_is_found(self):
        for path in self.files():
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
            self.assertRaisesRegex(memory.WrongMemory, 'Memory of the guest',
                                   self.guest.verify)
            path.write_bytes(data)
        self.guest.verify()

    def test_memory_alone_leaves_the_page_cache(self):
        before = len(self.commands)
        self.guest.verify_memory()
        self.assertNotIn('drop_caches', ''.join(self.commands[before:]))

    def test_a_changed_byte_of_the_process_is_found(self):
        changed = self.change_anonymous(0)
        self.assertGreaterEqual(changed, 1 << 20)
        self.assertRaisesRegex(memory.WrongMemory, 'Anonymous memory of the '
                               'guest', self.guest.verify_memory)

    def test_a_byte_at_the_end_of_the_process_is_found(self):
        self.change_anonymous(-1)
        self.assertRaises(memory.WrongMemory, self.guest.verify_memory)

    def test_a_process_that_is_gone(self):
        other = subprocess.Popen(['true'])
        other.wait()
        guest = dataclasses.replace(self.guest, holder=dataclasses.replace(
            self.guest.holder, pid=str(other.pid)))
        self.assertRaisesRegex(memory.WrongMemory, 'its process is gone',
                               guest.verify_memory)

    def change_anonymous(self, where):
        """Change a byte of the text that the process holds.

        It may have copies that it does not use any more: all are changed.

        :param where: index in the text
        :returns: bytes of the longest copy
        """
        longest = 0
        maps = pathlib.Path('/proc/%d/maps' % self.pid).read_text()
        with open('/proc/%d/mem' % self.pid, 'r+b', buffering=0) as process:
            for line in maps.splitlines():
                area, rights, *_, inode = line.split()[:5]
                if not rights.startswith('rw') or inode != '0':
                    continue
                begin, end = (int(one, 16) for one in area.split('-'))
                process.seek(begin)
                data = process.read(end - begin)
                for found in re.finditer(rb'[0-9a-f]{65536,}', data):
                    longest = max(longest, len(found.group()))
                    place = range(*found.span())[where]
                    process.seek(begin + place)
                    process.write(b'0' if data[place:place + 1] != b'0'
                                  else b'1')
        return longest

    def test_a_disk_that_is_not_what_the_page_cache_was(self):
        path, _ = self.files()

        def run(command):
            if 'drop_caches' in command:
                path.write_bytes(b'another content')
            return self.run_command(command)

        guest = dataclasses.replace(self.guest, run=run)
        self.assertRaisesRegex(memory.WrongMemory, 'A disk of the guest',
                               guest.verify)
