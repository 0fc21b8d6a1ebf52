# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases

_STOCK_QEMU = facts.End('compute2', False, '10.0.13', 'stock QEMU')


class AskingTest(base.TestCase):

    def asked(self, reason, **changes):
        changes['guest'] = {'hint_pages': 0, **changes.get('guest', {})}
        found = asking.obstacle(cases.make(**changes), 5.0)
        if reason:
            self.assertIn(reason, found)
        else:
            self.assertEqual('', found)

    def test_worth_it(self):
        self.asked('')
        self.asked('', options={'strategy': 'page_cache'})
        # half of it is known already
        self.asked('', guest={'hint_pages': 3 * cases.GIB // 2 // 4096})

    def test_not_asked_for(self):
        for strategy in ('off', 'shared_nas', 'snapshot', 'nonsense', None):
            self.asked('does not use page cache lists',
                       options={'strategy': strategy})

    def test_impossible(self):
        self.asked('QEMU of one host is not', destination=_STOCK_QEMU)
        self.asked('QEMU of one host is not', source=_STOCK_QEMU)
        self.asked('cannot read any', disks=())
        self.asked('cannot read any', disks=(cases.disk(copy='none'),))

    def test_no_use(self):
        fast = {'configured': None, 'measured': 100e9}
        for strategy in ('auto', 'page_cache'):
            self.asked('is faster', link=fast,
                       options={'strategy': strategy})
        known = {'hint_pages': 3 * cases.GIB // 4096}
        self.asked('takes longer than it could save', guest=known)
        self.asked('', guest=known, options={'strategy': 'page_cache'})
        self.asked('min_gain', options={'min_gain': 0.999})

    def test_an_ordinary_one_never_ends(self):
        self.asked('', guest={'dirty_rate': 14e6, 'in_use': None})

    def test_limit(self):
        """It grows with what is in use, to that of page_cache_time."""
        for in_use, seconds, expected in (
                (0, 5.0, 5.0), (8e9, 5.0, 9.0), (1e13, 5.0, 300.0),
                (1e13, 0.5, 300.0)):
            given = cases.make(guest={'memory': 2e13, 'in_use': in_use,
                                      'resident': 1e13})
            self.assertAlmostEqual(expected, asking.limit(given, seconds), 1)

    def test_cost_of_a_large_guest(self):
        """It counts what may be cached, not all that it was given."""
        known = {'hint_pages': 0, 'memory': 500 * cases.GIB,
                 'in_use': 2 * cases.GIB, 'resident': 2 * cases.GIB}
        self.asked('', guest=known)

    def test_again(self):
        for age, seconds, left, expected in (
                (29, 0.1, None, False), (31, 0.1, None, True),
                (31, 2.0, None, False), (41, 2.0, None, True),
                (31, 0.1, 29.0, False), (31, 0.1, 31.0, True),
                (41, 2.0, 39.0, False), (31, 0.1, float('inf'), True)):
            self.assertEqual(expected, asking.again(age, seconds, left))

    def indexed(self, reason, mode='auto', rate=200 << 20, limit=60.0,
                **changes):
        changes['guest'] = {'hint_pages': 0, **changes.get('guest', {})}
        found = asking.index_obstacle(cases.make(**changes), mode, rate,
                                      limit)
        if reason:
            self.assertIn(reason, found)
        else:
            self.assertEqual('', found)

    def test_index(self):
        self.indexed('')
        self.indexed('switched off', 'off')
        self.indexed('suffice', guest={'hint_pages': cases.GIB // 4096})
        self.indexed('min_gain', options={'min_gain': 0.999})
        self.indexed('longer than it could save', limit=3600.0, rate=1 << 10)
        for mode in 'auto', 'on':
            self.indexed('QEMU of one host is not', mode,
                         source=_STOCK_QEMU)
            self.indexed('cannot read any', mode, disks=())
            self.indexed('does not use', mode,
                         options={'strategy': 'shared_nas'})

    def test_index_whatever_it_costs(self):
        self.indexed('', 'on', rate=1 << 10, limit=3600.0,
                     guest={'hint_pages': cases.GIB // 4096},
                     options={'min_gain': 0.999})

    def test_usable(self):
        self.assertEqual({'a', 'b'}, asking.usable(cases.make(disks=(
            cases.disk(device='a'), cases.disk(device='b', copy='own'),
            cases.disk(device='c', copy='none'), cases.disk(device='')))))
