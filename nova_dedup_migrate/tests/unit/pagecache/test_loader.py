# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os
import time
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import loader
from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.pagecache import parser
from nova_dedup_migrate.pagecache import transport
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.pagecache import listings

VDA = dataclasses.replace(listings.VDA, pci=((2, 0),))
VDB = dataclasses.replace(VDA, pci=((3, 0),), name='vdb')
EXTENTS = [(0, 2, 4096, 0), (65536, 3, 0, 1)]


def listing(size=None, disks=(VDA, VDB), given=EXTENTS, **fields):
    made = parser.ListingParser()
    made.feed(listings.small(disks=disks, given=given, **fields)[:size])
    return made


class Given(transport.Transport):
    """Returns the outcome it was made with, or raises it."""

    def __init__(self, outcome, obstacle='', name='port'):
        self.name = name
        self._outcome = outcome
        self._obstacle = obstacle
        self.requests = 0

    def obstacle(self):
        return self._obstacle

    def request(self, limits, deadline):
        self.requests += 1
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class PageCacheLoaderTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.guest.run_state.return_value = 'running'
        self.guest.disks.return_value = {'vda': 'virtio-disk0',
                                         'vdb': 'virtio-disk1'}
        self.guest.qmp.side_effect = self.qom
        self.guest.load_dedup_map.side_effect = self.load
        self.states = [('loading', 0), ('loaded', 5)]
        self.guest.dedup_statistics.side_effect = self.look
        self.map = None

    def qom(self, command, path, property):
        number = int(path[-1]) if path[-1].isdigit() else None
        values = {'type': 'virtio-blk-pci', 'serial': '',
                  'addr': None if number is None else (2 + number) << 3,
                  'parent_bus': '/machine/i440fx/pci.0'}
        if number is None:
            values = {'type': 'i440FX-pcihost'}
        if values.get(property) is None:
            raise hypervisor_errors.QmpError(
                command=command, error_class='', description='')
        return values[property]

    def load(self, fd):
        self.map = mapformat.decode(os.pread(fd, 1 << 20, 0))

    def look(self):
        state, pages = (self.states.pop(0) if len(self.states) > 1
                        else self.states[0])
        return statistics.DedupStatistics(hints=statistics.HintStatistics(
            pages=4, map_state=state, map_pages=pages,
            map_error='malformed'))

    def fetch(self, *given, seconds=60.0, usable=None):
        return loader.PageCacheLoader(
            self.guest, given, transport.Limits(seconds)).load(usable)

    def test_all_is_well(self):
        end = form.End('whole', 'pages', 2, None, None, 100, 7,
                       time_us=250000, cpu_us=125000, read_bytes=0)
        found = self.fetch(Given(listing(
            skips=('nfs',), **{name: getattr(end, name) for name in (
                'method', 'cached_pages', 'dirty_pages', 'time_us',
                'cpu_us', 'read_bytes')})))
        self.assertEqual(answer.Answer(
            'taken', '', 'port', found.seconds, 'whole', 'pages', 2, 5, 5,
            100, 7, 0.25, 0.125, 0, 1, ('nfs',)), found)
        self.assertTrue(found.useful)
        self.assertEqual(('virtio-disk0', 'virtio-disk1'), self.map.disks)
        self.assertEqual(5, self.map.pages)

    def test_too_late_for_qemu(self):
        """The migration has gone on: its map must not change any more."""
        late = []
        convert = loader.convert.Converted.to_memfd

        def slowly(made):
            fd = convert(made)
            late.append(True)
            return fd

        with (mock.patch.object(loader.convert.Converted, 'to_memfd', slowly),
              mock.patch.object(loader.transport, 'left',
                                lambda deadline: 0 if late else 60)):
            found = self.fetch(Given(listing()))
        self.assertEqual('timeout', found.outcome)
        self.assertIn('page_cache_time', found.reason)
        self.assertIsNone(self.map)

    def test_time_of_its_own(self):
        given = Given(listing())
        with mock.patch.object(given, 'request',
                               wraps=given.request) as request:
            begun = time.monotonic()
            loader.PageCacheLoader(
                self.guest, [given], transport.Limits(5)).load(None, 600)
        self.assertAlmostEqual(begun + 480, request.call_args.args[1],
                               delta=60)

    def test_only_disks_of_use(self):
        self.fetch(Given(listing()), usable={'virtio-disk1'})
        self.assertEqual((('virtio-disk1',), 3),
                         (self.map.disks, self.map.pages))

    def test_no_disk_of_use(self):
        found = self.fetch(Given(listing()), usable=set())
        self.assertEqual('refused', found.outcome)
        self.assertIsNone(self.map)

    def test_disk_that_cannot_be_told(self):
        found = self.fetch(Given(listing(
            disks=(VDA, dataclasses.replace(VDB, pci=((9, 0),))))))
        self.assertEqual(('taken', 2), (found.outcome, self.map.pages))
        self.assertIn('vdb matches no disk', found.notes[0])

    def test_broke_off(self):
        found = self.fetch(Given(listing(size=-200)))
        self.assertEqual('partial', found.outcome)
        self.assertIn('cut off', found.reason)
        self.assertEqual(5, found.taken_pages)

    def test_ended_by_a_limit(self):
        found = self.fetch(Given(listing(status='ended: time')))
        self.assertEqual(('partial', 'ended: time'),
                         (found.outcome, found.reason))

    def test_nothing_cached(self):
        found = self.fetch(Given(listing(given=())))
        self.assertEqual(('taken', 0), (found.outcome, found.taken_pages))
        self.assertIn('has no pages', found.reason)
        self.assertIsNone(self.map)

    def test_transports(self):
        right = listing()
        unreachable = Given(errors.GuestUnreachable(reason='refused it'))
        closed = Given(right, 'closed')
        agent = Given(right, name='agent')
        found = self.fetch(closed, unreachable, agent)
        self.assertEqual(('taken', 'agent'), (found.outcome, found.transport))
        self.assertEqual(0, closed.requests)
        found = self.fetch(closed, unreachable)
        self.assertEqual('unavailable', found.outcome)
        self.assertIn('closed; the request for the page-cache listing '
                      'cannot be sent to the guest: refused it',
                      found.reason)
        self.assertEqual('unavailable', self.fetch().outcome)

    def test_timeout_and_malformed(self):
        for error, outcome in (
                (errors.NoAnswer(reason='x'), 'timeout'),
                (errors.ListingError(reason='x'), 'refused')):
            found = self.fetch(Given(error))
            self.assertEqual((outcome, 'port'),
                             (found.outcome, found.transport))
            self.assertFalse(found.useful)
            self.assertEqual('taken', self.fetch(
                Given(error), Given(listing(), name='agent')).outcome)

    def test_no_time_is_left_for_another_transport(self):
        second = Given(listing())
        found = self.fetch(second, seconds=0.1)
        self.assertEqual('unavailable', found.outcome)
        self.assertIn('no time was left', found.reason)
        self.assertEqual(0, second.requests)

    def test_qemu_refuses(self):
        self.states = [('failed', 0)]
        found = self.fetch(Given(listing()))
        self.assertEqual('refused', found.outcome)
        self.assertIn('malformed', found.reason)
        self.guest.load_dedup_map.side_effect = hypervisor_errors.QmpError(
            command='x-dedup-load-map', error_class='',
            description='Another page-cache map is being read')
        self.assertIn('Another', self.fetch(Given(listing())).reason)

    def test_qemu_is_slow(self):
        self.states = [('loading', 0)]
        begun = time.monotonic()
        found = self.fetch(Given(listing()), seconds=0.5)
        self.assertEqual(('partial', 'QEMU is still reading the map', 4), (
            found.outcome, found.reason, found.taken_pages))
        self.assertLess(time.monotonic() - begun, 30)

    def test_obstacle(self):
        def obstacle(*given):
            return loader.PageCacheLoader(self.guest, given,
                                          transport.Limits()).obstacle()
        self.assertEqual('', obstacle(Given(None, 'x'), Given(None)))
        self.assertEqual('x; y', obstacle(Given(None, 'x'), Given(None, 'y')))
        self.assertTrue(obstacle())
        self.guest.run_state.return_value = 'paused'
        self.assertEqual('the guest is not running', obstacle(Given(None)))
