# SPDX-License-Identifier: Apache-2.0
"""The guests of the suites, and what tests say about them."""

import os
import tempfile

from nova_dedup_migrate.hypervisor import errors
from testkit import bootsector
from testkit import memory
from testkit import options

MIB = 1 << 20


class Suite:
    """Guests, and what tests say about them.

    :cvar boot: the guest's work: 8 MiB of RAM, a pass every 50 ms or so
    """

    boot = bootsector.BootSector(chunks=14, pages=2048, delay=50_000_000)

    def setUp(self):
        super().setUp()
        self.dir = self.temporary_dir()
        self.image = self.boot.write_image(self.dir / 'disk.img')

    def started(self, name='source'):
        """Return a guest that has booted and works."""
        guest = self.make(name)
        guest.start()
        self.assert_works(guest)
        return guest

    def assert_works(self, guest, passes=2):
        """Wait until the guest has made that many more passes."""
        before = self.console(guest).count(b'B')

        def done():
            output = self.console(guest)
            self.assertNotIn(b'X', output, 'the guest found wrong memory')
            self.assertNotIn(b'E', output, 'the guest cannot read its disk')
            return output.count(b'B') >= before + passes
        self.eventually(done, '%d passes of %s' % (passes, guest.name))

    def assert_same_memory(self, source, destination):
        """Compare all RAM of two guests that do not run."""
        with self.memory_dir() as directory:
            self.assert_identical(
                source.save_memory(directory + '/source'),
                destination.save_memory(directory + '/destination'))

    def memory_dir(self):
        # Memory, if there is enough of it, is faster than a disk.
        place = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
        return tempfile.TemporaryDirectory(dir=place)

    def assert_identical(self, one, other):
        result = memory.compare(one, other)
        self.assertGreater(result.pages, self.boot.pages)
        self.assertEqual((0, ()), (result.differing, result.addresses))

    def migrate(self, source, destination, **given):
        """Begin to migrate; the guest stays paused at its destination."""
        given.setdefault('paused', True)
        try:
            return source.migrate(destination,
                                  options.MigrationOptions(**given))
        except errors.NotOffered as error:
            self.skipTest(str(error))

    def assert_arrives(self, source, destination, migration):
        """Wait for the end, compare RAM, let the guest go on."""
        final = migration.wait(60)
        self.assertEqual('completed', final.status)
        self.assert_left(source)
        self.assertEqual('paused', destination.run_state())
        if source.source_stays:
            self.assert_same_memory(source, destination)
        destination.cont()
        self.assert_works(destination)
        return final

    def assert_left(self, source):
        """The guest is no longer here, and cannot be taken for it."""
        if source.source_stays:
            self.assertEqual('postmigrate', source.run_state())
        else:
            self.assertFalse(source.is_alive())
            self.assertRaises(errors.GuestNotRunning, source.run_state)

    def assert_paused_arrives(self, source, destination, **given):
        """Migrate a guest that does not run; compare its RAM."""
        source.pause()
        with self.memory_dir() as directory:
            before = source.save_memory(directory + '/before')
            final = self.migrate(source, destination, **given).wait(60)
            self.assert_left(source)
            self.assertEqual('paused', destination.run_state())
            after = destination.save_memory(directory + '/after')
            self.assert_identical(before, after)
        destination.cont()
        self.assert_works(destination)
        return final

    def wait_for_bytes(self, migration, count):
        """Wait until count bytes went through the link."""
        def reached():
            now = migration.progress()
            return now if now.transferred_bytes >= count else None
        return self.eventually(reached, '%d bytes' % count)
