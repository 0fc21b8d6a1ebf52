# SPDX-License-Identifier: Apache-2.0
"""New volumes of every kind are filled, by a user who may not open them."""

import multiprocessing
import os
import random
import shutil
import subprocess
import tempfile

from oslo_config import cfg
from oslo_privsep import priv_context

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import writable
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import volume_writer
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.tests.functional.storage import world
from nova_dedup_migrate.tests.unit.storage.sources import test_backup

CONF = cfg.CONF
#: Has no right to anything.
_NOBODY = 65534


class VolumeCase(world.Case):

    def setUp(self):
        if os.geteuid():
            self.skipTest('only root can take a right away from itself')
        super().setUp()
        self.data = world.content(5, 301, tail=4096 + 512)
        self.plain = b''.join(self.data)
        self.size = len(self.plain)
        self.source = self.create('source', 'raw', self.size)
        self.write(self.source, [
            (number * world.BLOCK, block)
            for number, block in enumerate(self.data) if any(block)])
        os.chmod(self.source.path, 0o666)
        #: Of another user, who alone may open it.
        self.share = self.directory / 'share'
        self.share.mkdir()
        os.chmod(self.share, 0o711)
        writable.nova.register_opts(CONF)
        CONF.set_override('nfs_mount_point_base', str(self.share), 'libvirt')
        self.addCleanup(CONF.clear_override, 'nfs_mount_point_base',
                        'libvirt')

    def file(self, content=bytes(4096)):
        """Return the path of a volume in a file, of another user."""
        path = self.share / 'volume'
        path.write_bytes(content)
        os.truncate(path, self.size)
        os.chown(path, 1234, 1234)
        os.chmod(path, 0o600)
        return str(path)

    def device(self):
        """Return the path of a device that has held something else."""
        backing = self.directory / 'backing'
        backing.write_bytes(random.Random(8).randbytes(self.size))
        try:
            done = subprocess.run(
                ['losetup', '--find', '--show', backing], check=True,
                capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.skipTest('there are no loop devices: %s' % error)
        device = done.stdout.strip()
        self.addCleanup(subprocess.run, ['losetup', '--detach', device],
                        check=True)
        return device

    def filled(self, path):
        """Fill a volume from a backup; return what was built."""
        source = backup_source.BackupSource(test_backup.Reader(self.plain))
        return rebuild.Rebuild(
            self.disk(writer.Image(path, 'raw'), self.size), [source],
            rebuild.Limits(reserve=0), program=self.emulator,
            opener=volume_writer.VolumeWriter).run(self.opener(self.source))

    def check_all(self, built, path):
        disk = self.disk(writer.Image(path, 'raw'), self.size)
        self.assertGreaterEqual(self.check(built, disk, self.plain),
                                self.size - disk.granularity)
        zeros = sum(len(block) for block in self.data if not any(block))
        self.assertEqual({'backup': self.size - zeros, 'zero': zeros},
                         built.sources)


class DeviceTest(VolumeCase):

    def test_with_stale_content(self):
        """Where the volume has zeros the device has something else."""
        path = self.device()
        self.check_all(self.filled(path), path)

    def test_its_node_changes(self):
        """As udev has it after each writer."""
        path = self.device()
        built = self.filled(path)
        os.utime(path)
        self.check_all(built, path)

    def test_another_device_by_that_name(self):
        path = self.device()
        built = self.filled(path)
        link = self.directory / 'device'
        os.mknod(link, 0o600 | 0o060000, os.stat('/dev/loop0').st_rdev + 77)
        self.assertRaises(errors.TargetReplaced, built.identity.check, link)

    def test_a_device_of_the_host(self):
        path = self.device()
        subprocess.run(['mkfs.ext2', '-q', path], check=True)
        mounted = self.temporary_dir()
        subprocess.run(['mount', path, mounted], check=True)
        self.addCleanup(subprocess.run, ['umount', mounted], check=True)
        error = self.assertRaises(errors.TargetFailed, self.filled, path)
        self.assertIn('busy', str(error))


class FileTest(VolumeCase):

    def test_with_stale_content(self):
        path = self.file(random.Random(8).randbytes(self.size))
        self.check_all(self.filled(path), path)

    def test_qcow2(self):
        image = self.create('volume.qcow2', 'qcow2', self.size)
        source = backup_source.BackupSource(test_backup.Reader(self.plain))
        built = rebuild.Rebuild(
            self.disk(image, self.size), [source], rebuild.Limits(reserve=0),
            program=self.emulator, opener=volume_writer.VolumeWriter).run(
                self.opener(self.source))
        self.check(built, self.disk(image, self.size), self.plain)

    def test_no_qemu(self):
        self.emulator = '/nonexistent/qemu'
        error = self.assertRaises(errors.TargetFailed, self.filled,
                                  self.file())
        self.assertIn('/nonexistent/qemu', str(error))


class PrivilegeTest(VolumeCase):
    """In a process that runs as nobody, with the helper it began with."""

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o777)
        # The cache may be in a directory that is closed to others.
        self.emulator, self.program = (
            shutil.copy(program, self.directory)
            for program in (self.emulator, self.program))

    def unprivileged(self, function, helper=True):
        """Return what a function returns, or raise what it raises."""
        parent, child = multiprocessing.get_context('fork').Pipe()
        process = multiprocessing.get_context('fork').Process(
            target=self._run, args=(child, function, helper))
        process.start()
        child.close()
        kind, value = parent.recv()
        process.join()
        if kind is not None:
            raise kind(*value)
        return value

    def _run(self, channel, function, helper):
        try:
            if helper:
                writable.context.start(priv_context.Method.FORK)
            else:
                CONF.set_override('helper_command', 'false',
                                  'dedup_migrate_writer')
            os.setgroups([])
            os.setgid(_NOBODY)
            os.setuid(_NOBODY)
            tempfile.tempdir = tempfile.mkdtemp(dir=self.directory)
            channel.send((None, function()))
        except errors.TargetFailed as error:
            channel.send((AssertionError, (str(error),)))
        except Exception as error:
            channel.send((type(error), error.args))
        finally:
            os._exit(0)

    def test_a_file(self):
        path = self.file()
        built = self.unprivileged(lambda: self.filled(path))
        self.check_all(built, path)

    def test_a_device(self):
        path = self.device()
        built = self.unprivileged(lambda: self.filled(path))
        self.check_all(built, path)

    def test_without_the_helper(self):
        path = self.file()
        error = self.assertRaises(
            AssertionError, self.unprivileged, lambda: self.filled(path),
            helper=False)
        self.assertIn('dedup_migrate_writer', str(error))
        with open(path, 'rb') as file:
            self.assertTrue(file.read() == bytes(self.size))

    def test_what_writes_has_no_capability(self):
        path = self.file()

        def status():
            daemon = volume_writer.VolumeWriter(
                writer.Image(path, 'raw'), (), self.emulator)
            with open('/proc/%d/status' % daemon.pid) as file:
                found = dict(line.split(':', 1) for line in file)
            daemon.close()
            return [found[name].split()[0]
                    for name in ('Uid', 'CapPrm', 'CapAmb', 'NoNewPrivs')]

        none = '0' * 16
        self.assertEqual([str(_NOBODY), none, none, '1'],
                         self.unprivileged(status))

    def test_other_files(self):
        """Outside the mounts, links, what is swapped in between."""
        path = self.file()
        secret = self.directory / 'secret'
        secret.write_bytes(b'secret')
        os.chmod(secret, 0o600)
        inside = self.share / 'inside'
        inside.symlink_to(secret)
        for name in secret, inside, self.share / '..' / 'secret':
            self.assertRaises(paths.PathRefused, self.unprivileged,
                              lambda name=name: writable.open_volume(
                                  str(name)))
        os.mkfifo(self.share / 'fifo')
        self.assertRaises(paths.PathRefused, self.unprivileged,
                          lambda: writable.open_volume(
                              str(self.share / 'fifo')))

        def swapped():
            there = os.stat(path)
            writable.send_volume(path, [there.st_dev, there.st_ino + 1, 0],
                                 '/nowhere')

        error = self.assertRaises(paths.PathRefused, self.unprivileged,
                                  swapped)
        self.assertIn('not the file', str(error))
