# SPDX-License-Identifier: Apache-2.0
import dataclasses
import os
import time
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import ask
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
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


class Way(transport.Transport):
    """Answers with what it was made of; raises errors."""

    def __init__(self, outcome, obstacle='', name='port'):
        self.name = name
        self._outcome = outcome
        self._obstacle = obstacle
        self.asked = 0

    def obstacle(self):
        return self._obstacle

    def ask(self, limits, deadline):
        self.asked += 1
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class AskTest(base.TestCase):

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

    def ask(self, *ways, seconds=60.0, usable=None):
        return ask.Asker(self.guest, ways, transport.Limits(seconds)).ask(
            usable)

    def test_all_is_well(self):
        end = form.End('whole', 'pages', 2, None, None, 100, 7,
                       time_us=250000, cpu_us=125000, read_bytes=0)
        found = self.ask(Way(listing(
            skips=('nfs',), **{name: getattr(end, name) for name in (
                'method', 'cached_pages', 'dirty_pages', 'time_us',
                'cpu_us', 'read_bytes')})))
        self.assertEqual(answer.Answer(
            'taken', '', 'port', found.seconds, 'whole', 'pages', 2, 5, 5,
            100, 7, 0.25, 0.125, 0, 1, ('nfs',)), found)
        self.assertTrue(found.useful)
        self.assertEqual(('virtio-disk0', 'virtio-disk1'), self.map.disks)
        self.assertEqual(5, self.map.pages)

    def test_only_disks_of_use(self):
        self.ask(Way(listing()), usable={'virtio-disk1'})
        self.assertEqual((('virtio-disk1',), 3),
                         (self.map.disks, self.map.pages))

    def test_no_disk_of_use(self):
        found = self.ask(Way(listing()), usable=set())
        self.assertEqual('refused', found.outcome)
        self.assertIsNone(self.map)

    def test_disk_that_cannot_be_told(self):
        found = self.ask(Way(listing(
            disks=(VDA, dataclasses.replace(VDB, pci=((9, 0),))))))
        self.assertEqual(('taken', 2), (found.outcome, self.map.pages))
        self.assertIn('vdb is none of', found.notes[0])

    def test_broke_off(self):
        found = self.ask(Way(listing(size=-200)))
        self.assertEqual('partial', found.outcome)
        self.assertIn('broke off', found.reason)
        self.assertEqual(5, found.taken_pages)

    def test_ended_by_a_limit(self):
        found = self.ask(Way(listing(status='ended: time')))
        self.assertEqual(('partial', 'ended: time'),
                         (found.outcome, found.reason))

    def test_nothing_cached(self):
        found = self.ask(Way(listing(given=())))
        self.assertEqual(('taken', 0), (found.outcome, found.taken_pages))
        self.assertIn('nothing', found.reason)
        self.assertIsNone(self.map)

    def test_ways(self):
        right = listing()
        no_way = Way(errors.NoWay(reason='refused it'))
        closed = Way(right, 'closed')
        agent = Way(right, name='agent')
        found = self.ask(closed, no_way, agent)
        self.assertEqual(('taken', 'agent'), (found.outcome, found.way))
        self.assertEqual(0, closed.asked)
        found = self.ask(closed, no_way)
        self.assertEqual('unavailable', found.outcome)
        self.assertIn('closed; the guest cannot be asked: refused it',
                      found.reason)
        self.assertEqual('unavailable', self.ask().outcome)

    def test_silent_and_nonsense(self):
        for error, outcome in (
                (errors.NoAnswer(reason='x'), 'timeout'),
                (errors.ListingError(reason='x'), 'refused')):
            found = self.ask(Way(error))
            self.assertEqual((outcome, 'port'), (found.outcome, found.way))
            self.assertFalse(found.useful)
            self.assertEqual('taken', self.ask(
                Way(error), Way(listing(), name='agent')).outcome)

    def test_no_time_is_left_for_another_way(self):
        second = Way(listing())
        self.assertEqual('unavailable', self.ask(second, seconds=0.1).outcome)
        self.assertEqual(0, second.asked)

    def test_qemu_refuses(self):
        self.states = [('failed', 0)]
        found = self.ask(Way(listing()))
        self.assertEqual('refused', found.outcome)
        self.assertIn('malformed', found.reason)
        self.guest.load_dedup_map.side_effect = hypervisor_errors.QmpError(
            command='x-dedup-load-map', error_class='',
            description='Another page-cache map is being read')
        self.assertIn('Another', self.ask(Way(listing())).reason)

    def test_qemu_is_slow(self):
        self.states = [('loading', 0)]
        begun = time.monotonic()
        found = self.ask(Way(listing()), seconds=0.5)
        self.assertEqual(('partial', 'QEMU still reads it', 4), (
            found.outcome, found.reason, found.taken_pages))
        self.assertLess(time.monotonic() - begun, 30)

    def test_obstacle(self):
        def obstacle(*ways):
            return ask.Asker(self.guest, ways,
                             transport.Limits()).obstacle()
        self.assertEqual('', obstacle(Way(None, 'x'), Way(None)))
        self.assertEqual('x; y', obstacle(Way(None, 'x'), Way(None, 'y')))
        self.assertTrue(obstacle())
        self.guest.run_state.return_value = 'paused'
        self.assertEqual('it does not run', obstacle(Way(None)))
