# SPDX-License-Identifier: Apache-2.0
"""A disk that a guest could have, and a target to build it in."""

import io
import random
import resource
import subprocess

import fixtures

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import base as sources
from nova_dedup_migrate.tests import base
from testkit import qemus

BLOCK = blocks.BLOCK


class Held(sources.Source):
    """Blocks in memory.

    :param content: bytes of blocks
    """

    cost = sources.Cost(rate=1e9, latency=0.0)

    def __init__(self, content, name='held'):
        self.name = name
        self.content = {blocks.digest(data): data for data in content}

    def have(self, wanted):
        return [block.digest in self.content for block in wanted]

    def read(self, wanted):
        return [self.content.get(block.digest) for block in wanted]


class Case(base.TestCase):
    """Images are made and read with qemu-img of the patched QEMU."""

    def setUp(self):
        super().setUp()
        # tests/functional/__init__.py of the repository says which QEMU
        binary = qemus.find('patched', qemus.require(self, 'patched'))
        self.emulator = str(binary)
        self.program = str(qemus.tool(binary, 'qemu-storage-daemon'))
        self.img = str(qemus.tool(binary, 'qemu-img'))
        self.directory = self.temporary_dir()

    def create(self, name, image_format, size, backing=None):
        """Make an image; return a writer.Image."""
        path = str(self.directory / name)
        options = [] if backing is None else [
            '-b', backing.path, '-F', backing.format]
        subprocess.run([self.img, 'create', '-q', '-f', image_format,
                        *options, path, str(size)], check=True)
        return writer.Image(path, image_format)

    def content(self, image):
        """Return the bytes a guest reads."""
        if image.format == 'raw':
            with open(image.path, 'rb') as file:
                return file.read()
        path = str(self.directory / 'plain')
        subprocess.run([self.img, 'convert', '-f', image.format, '-O',
                        'raw', image.path, path], check=True)
        with open(path, 'rb') as file:
            return file.read()

    def write(self, image, pieces, backing=()):
        """Write (offset, data) as a guest would."""
        if image.format == 'raw':
            with open(image.path, 'r+b') as file:
                for offset, data in pieces:
                    file.seek(offset)
                    file.write(data)
            return
        daemon = writer.Writer(image, backing, self.program)
        with daemon.connect() as handle:
            for offset, data in pieces:
                handle.pwrite(data, offset)
            handle.flush()
        daemon.close()

    def disk(self, image, size, backing=(), granularity=64 << 10,
             watch=b'w' * 32):
        return rebuild.Disk(
            image, size, str(self.directory / 'journal'), watch,
            granularity, backing)

    def opener(self, image, backing=(), above_base=False,
               granularity=64 << 10, cleared=None):
        """Return an OpenManifest that reads an image."""
        def open_manifest(wanted):
            daemon = writer.Writer(image, backing, self.program)
            self.addCleanup(daemon.abandon)
            with daemon.connect() as handle:
                data = b''.join(scan.scan(
                    handle, (cleared or (lambda offset, length: None)),
                    wanted=wanted, above_base=above_base,
                    granularity=granularity))
            daemon.close()
            return io.BytesIO(data).read
        return open_manifest

    def rebuild(self, disk, sources, open_manifest, written=None,
                **options):
        options.setdefault('limits', rebuild.Limits(reserve=0))
        return rebuild.Rebuild(disk, sources, program=self.program,
                               roots=[str(self.directory)], **options
                               ).run(open_manifest, written)

    def check(self, rebuilt, disk, expected):
        """Compare every byte of what is proven; return proven blocks."""
        built = self.content(disk.image)
        self.assertEqual(len(expected), len(built))
        proven = 0
        for offset, length in rebuilt.proven.extents(disk.granularity,
                                                     disk.size):
            # not assertEqual: it would print both
            self.assertTrue(built[offset:offset + length]
                            == expected[offset:offset + length], offset)
            proven += length
        canary = rebuilt.canary
        self.assertFalse(rebuilt.proven[canary.offset // disk.granularity])
        self.assertEqual(canary.data, built[canary.offset:
                                            canary.offset + 512])
        rebuilt.identity.check(disk.image.path)
        return proven


def content(seed, count, zeros=0.3, tail=0):
    """Return blocks of a disk: random ones, zeros in runs."""
    source = random.Random(seed)
    found = []
    while len(found) < count:
        run = source.randrange(1, 9)
        zero = source.random() < zeros
        found += [bytes(BLOCK) if zero else source.randbytes(BLOCK)
                  for _ in range(run)]
    found = found[:count]
    if tail:
        found.append(source.randbytes(tail))
    return found


def patched(target, name, function):
    return fixtures.MonkeyPatch(
        '%s.%s.%s' % (target.__module__, target.__qualname__, name),
        function)


def limit(pid, length):
    """Let a process write no file beyond length."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (length, length))


def has_ended(pid):
    """Whether a process runs no more; a zombie does not.

    Its first thread may be one while others still have its files open.
    """
    try:
        with open('/proc/%d/stat' % pid) as file:
            found = file.read().rpartition(')')[2].split()
        # the state, and the number of threads
        return found[0] == 'Z' and found[17] == '1'
    except FileNotFoundError:
        return True
