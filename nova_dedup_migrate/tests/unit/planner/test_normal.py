# SPDX-License-Identifier: Apache-2.0
import math

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases


class NumberTest(base.TestCase):

    def test_table(self):
        for value, expected in (
                (0, 0), (1, 1), (2.5, 2.5), (None, 7), ('5', 7), (True, 7),
                (-1, 7), (-math.inf, 7), (math.nan, 7), (math.inf, 100),
                (10 ** 400, 100), (-10 ** 400, 7), ([], 7), (101, 100)):
            self.assertEqual(expected, normal.number(value, 100, 7), value)


class NormalTest(base.TestCase):

    def test_good_facts_stay(self):
        given = cases.make()
        self.assertEqual(given, normal.normal(given))

    def test_guest(self):
        def guest(**changes):
            return normal.normal(cases.make(guest=changes)).guest
        self.assertEqual(4 * cases.GIB, guest(resident=0).resident)
        self.assertEqual(4 * cases.GIB, guest(resident=None).resident)
        self.assertEqual(4 * cases.GIB, guest(resident=1 << 80).resident)
        self.assertEqual(3 * cases.GIB // 4096,
                         guest(hint_pages=1 << 70).hint_pages)
        self.assertEqual(0, guest(hint_pages=None).hint_pages)
        self.assertEqual(0, guest(memory=None).resident)
        self.assertEqual(4096, guest(page_size=0).page_size)
        self.assertEqual(0.0, guest(dirty_rate=math.nan).dirty_rate)
        self.assertIsNone(guest(disk_write_rate=None).disk_write_rate)
        self.assertEqual(0.0, guest(disk_write_rate=-5).disk_write_rate)

    def test_memory_in_use(self):
        def guest(in_use, error=0.0):
            return normal.normal(cases.make(
                guest={'in_use': in_use, 'in_use_error': error})).guest
        self.assertIsNone(guest(None).in_use)
        self.assertEqual(cases.GIB, guest(cases.GIB).in_use)
        self.assertEqual(4 * cases.GIB, guest(1 << 70).in_use)
        self.assertEqual(4 * cases.GIB, guest(-1).in_use)
        self.assertEqual(cases.GIB // 4096, guest(cases.GIB).hint_pages)
        self.assertEqual(0.0, guest(1, 'x').in_use_error)
        self.assertEqual(4 * cases.GIB, guest(1, 1e300).in_use_error)

    def test_link(self):
        link = normal.normal(cases.make(link={
            'configured': 0, 'measured': -3, 'host_limit': math.inf})).link
        self.assertEqual(facts.Link(None, None, normal.MAX_RATE), link)

    def test_shares(self):
        def shares(value):
            given = normal.normal(cases.make(
                guest={'valid_share': value},
                disks=(cases.disk(valid_share=value),)))
            self.assertEqual(given.guest.valid_share,
                             given.disks[0].valid_share)
            return given.guest.valid_share
        for value, expected in ((None, None), (0.5, 0.5), (1.5, 1.0),
                                (-1, 0.0), (math.nan, 0.0), ('x', 0.0)):
            self.assertEqual(expected, shares(value))

    def test_sharers(self):
        for value, expected in ((3, 3), (-1, 0), (None, 0), (10 ** 9, 1000)):
            given = normal.normal(cases.make(link={'sharers': value}))
            self.assertEqual(expected, given.link.sharers)

    def test_hints_of_a_disk(self):
        for value, expected in ((None, None), (7, 7), (-1, 0), ('x', 0),
                                (1 << 90, normal.MAX_BYTES // 4096)):
            given = normal.normal(cases.make(disks=(
                cases.disk(hint_pages=value, scattered_rate=0),)))
            self.assertEqual(expected, given.disks[0].hint_pages)
            self.assertIsNone(given.disks[0].scattered_rate)

    def test_disks(self):
        given = cases.make(disks=(
            cases.disk(copy='elsewhere', storage_rate=0, size=None,
                       to_copy=-1),) * 1000)
        disks = normal.normal(given).disks
        self.assertEqual(normal.MAX_DISKS, len(disks))
        self.assertEqual((facts.NONE, None, 0.0, 0.0),
                         (disks[0].copy, disks[0].storage_rate,
                          disks[0].size, disks[0].to_copy))

    def test_options(self):
        options = normal.normal(cases.make(options={
            'downtime_ms': None, 'multifd_channels': -1, 'timeout': 0,
            'min_gain': 'x', 'downtime_steps': None})).options
        self.assertEqual((0.0, 0, None, 0.05, ()),
                         (options.downtime_ms, options.multifd_channels,
                          options.timeout, options.min_gain,
                          options.downtime_steps))
