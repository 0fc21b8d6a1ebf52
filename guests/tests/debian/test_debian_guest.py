# SPDX-License-Identifier: Apache-2.0
"""A Debian with a web server and a database, asked and migrated.

I/O is not tracked, so all that QEMU knows is what the guest's lister has
said.  All memory is compared, and what the guest serves is verified.
"""

import contextlib
import os
import sys

from guests.debian import client
from guests.debian import image
from guests.lister import pageflags
from guests.tests.debian import rig
from nova_dedup_migrate.pagecache import guestagent
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.pagecache import port
from nova_dedup_migrate.pagecache import transport
from nova_dedup_migrate.tests import base
from testkit import direct
from testkit import memory
from testkit import options
from testkit import qemus

WEB_BYTES = client.FILES * client.FILE_BYTES
#: Bytes a second: a pass over memory takes seconds, and the loads go on.
RATE = 64 << 20


class DebianGuestTest(base.TestCase):

    timeout = 3000

    def setUp(self):
        self.binary = qemus.require(self, 'patched')
        if os.geteuid() != 0:
            self.skipTest('only root can make the Debian guest')
        super().setUp()
        self.directory = self.temporary_dir()
        self.rig = rig.Guest(self.binary,
                             image.own_copy(self.directory / 'disk.raw'))
        self.addCleanup(lambda: self.rig.destroy())
        self.say('booted in %.0f s', self.rig.start())

    def say(self, text, *values):
        """Print a figure; standard output is the test runner's."""
        print('debian guest: ' + text % values, file=sys.stderr, flush=True)

    def warmed(self):
        """Cache the web server's files, and see that they are right."""
        self.rig.talk.drop()
        self.assertEqual(WEB_BYTES, self.rig.talk.warm('web'))
        self.right('files')
        self.eventually(self.rig.lister_waits, 'a lister at the port', 300)

    def right(self, what):
        verified = self.rig.talk.verify(what)
        self.assertEqual((0, ''), (verified.errors, verified.error))
        if what == 'files':
            self.assertEqual(WEB_BYTES, verified.bytes)
        return verified

    def loaded(self, load, seconds, **given):
        """Load a server, return what it did in some seconds."""
        talk = self.rig.talk
        begin = talk.clock().guest
        talk.start(load, **given)
        self.eventually(lambda: talk.clock().guest >= begin + seconds,
                        'load', 60 * seconds, interval=0.5)
        return begin, talk.window(load, begin, begin + seconds)

    def test_loads_and_listing(self):
        self.warmed()
        self.right('db')
        _, web = self.loaded('web', 5, clients=2)
        self.rig.talk.stop('web')
        self.say('web: %.1f MB/s, median %.1f ms', web.throughput,
                 web.p50 * 1e3)
        self.assertEqual(0, web.errors)
        self.assertGreater(web.requests, 0)
        begin, _ = self.loaded('db', 5, clients=2)
        # where the machine is busy, none may have ended by now
        self.eventually(
            lambda: self.rig.talk.window('db', begin, begin + 1e6).requests,
            'transactions', 600, interval=0.5)
        self.rig.talk.stop('db')
        database = self.rig.talk.window('db', begin,
                                        self.rig.talk.clock().guest + 1)
        self.say('db: %d transactions, median %.1f ms, %.1f MB read',
                 database.requests, database.p50 * 1e3,
                 database.bytes / 1e6)
        self.assertEqual(0, database.errors)
        self.assertGreater(database.requests, 0)
        self.assertGreater(database.bytes, 0)
        self.assertGreaterEqual(len(self.rig.talk.series('db', begin)), 2)
        self.right('db')
        self.listed()

    def listed(self):
        """What is listed is on disk, and is 95 % of what is cached."""
        self.asked_by_agent()
        found = self.rig.list()
        flags = self.rig.page_flags()
        compared = self.rig.verify(found, self.directory, flags)
        self.say('listed %d pages in %.2f s, coverage %.2f %%, %d of %d '
                 'differ from the disk', found.pages,
                 found.numbers['us'] / 1e6, 100 * compared.coverage,
                 len(compared.wrong), compared.right + len(compared.wrong))
        self.assertGreaterEqual(compared.coverage, 0.95)
        # the guest runs while it lists, and some pages change
        self.assertLess(len(compared.wrong), 0.001 * compared.right)
        self.assertGreaterEqual(compared.right, WEB_BYTES // 4096)
        rest = pageflags.rest(self.rig.memory(self.directory), flags,
                              compared.listed)
        self.say('left to be sent, %.0f MB: %s', rest.total() / 1e6,
                 ', '.join('%s %.1f' % (name, size / 1e6)
                           for name, size in rest.most_common()))

    def asked_by_agent(self):
        """qemu-guest-agent's guest-exec leads to the same lister."""
        guest = self.rig.guest
        found = loading.PageCacheLoader(
            guest, [guestagent.AgentTransport(guest)],
            transport.Limits(120.0)).load()
        self.say('asked by agent: %s', found)
        self.assertEqual(('agent', 'taken', ''),
                         (found.transport, found.outcome, found.reason))
        self.assertGreaterEqual(found.taken_pages, WEB_BYTES // 4096)

    def test_teleport_under_load(self):
        self.warmed()
        talk = self.rig.talk
        self.loaded('web', 3, rate=10)
        talk.start('db', rate=5)
        source = self.rig.guest
        loader = loading.PageCacheLoader(
            source, [port.PortTransport(source)], transport.Limits(120.0))
        found = loader.load()
        self.say('asked: %s', found)
        self.assertEqual(('taken', ''), (found.outcome, found.reason))
        self.assertGreaterEqual(found.taken_pages, WEB_BYTES // 4096)
        there = self.migrated(source, found)
        self.rig.move(there)
        there.cont()
        self.went_on(talk.clock().guest)

    def migrated(self, source, found):
        """Migrate it as it runs; return the guest, not running yet."""
        there = direct.DirectGuest(source.spec, self.temporary_dir(),
                                   'destination')
        self.addCleanup(there.destroy)
        source.arm_dedup()
        last = source.migrate(there, options.MigrationOptions(
            paused=True, max_bandwidth=RATE)).wait(900)
        with contextlib.ExitStack() as images:
            here, arrived = (
                guest.save_memory(self.directory / guest.name)
                for guest in (source, there))
            images.callback(here.remove)
            images.callback(arrived.remove)
            result = memory.compare(here, arrived)
        figures = last.dedup.source
        self.say('migrated with %.1f MB: %s', last.transferred_bytes / 1e6,
                 figures)
        self.assertEqual(0, result.differing, result.addresses)
        self.assertGreater(figures.storage_pages, 0.8 * found.taken_pages)
        return there

    def went_on(self, since):
        """The loads have not noticed, and what is served is right."""
        talk = self.rig.talk
        self.eventually(
            lambda: talk.window('web', since, since + 1e6).requests > 9,
            'requests', 300, interval=0.5)
        talk.stop('web')
        talk.stop('db')
        end = talk.clock().guest + 1
        for load in client.LOADS:
            window = talk.window(load, 0, end)
            self.say('%s: %s', load, window)
            self.assertEqual(0, window.errors, load)
        # where the guest is slow, no transaction may have ended by now
        talk.start('db', mode='select')
        self.eventually(
            lambda: talk.window('db', since, since + 1e6).requests > 0,
            'transactions', 600, interval=0.5)
        talk.stop('db')
        self.right('files')
        self.right('db')
