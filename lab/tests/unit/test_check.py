# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from lab import check
from lab import guest
from lab import migrations
from lab import settings
from lab.hosts import lab as labs
from nova_dedup_migrate.tests import base


def outcome(kind, sent, source='compute1', wrong=0, verified=1 << 28,
            **values):
    return migrations.Outcome(kind, source, 'compute2', 1.0, sent, 1,
                              verified, wrong, 'uuid', **values)


class TestWrong(base.TestCase):

    def good(self):
        return [outcome(kind, sent, source)
                for kind, sent in (('stock', 100), ('dedup', 50))
                for source in ('compute1', 'compute2')]

    def wrong(self, outcomes, **values):
        return check.wrong(outcomes, settings.Settings(**values))

    def test_good_ones_are_right(self):
        self.assertEqual([], self.wrong(self.good()))

    def test_a_wrong_page_is_told(self):
        self.assertIn('2 wrong pages', self.wrong(
            [*self.good(), outcome('dedup', 1, wrong=2)])[0])

    def test_a_guest_that_verified_nothing_is_told(self):
        self.assertIn('verified nothing', self.wrong(
            [*self.good(), outcome('dedup', 1, verified=0)])[0])

    def test_both_directions_are_wanted(self):
        self.assertEqual(
            ['dedup: not both directions'],
            self.wrong([one for one in self.good()
                        if (one.kind, one.source)
                        != ('dedup', 'compute2')]))

    def test_few_bytes_are_wanted(self):
        self.assertIn('dedup sent', self.wrong(
            [*self.good(), outcome('dedup', 100)])[0])

    def test_one_kind_alone_is_compared_with_nothing(self):
        self.assertEqual([], self.wrong(
            [one for one in self.good() if one.kind == 'dedup']))

    def test_an_ordinary_migration_has_to_say_why(self):
        """Of hosts that do not both have the driver and the QEMU."""
        good = [outcome('dedup', 100, strategy='stock', reason='so'),
                outcome('dedup', 100, 'compute2')]
        mixed = {'drivers': ('dedup', 'stock')}
        self.assertEqual([], self.wrong(good, **mixed))
        self.assertIn('does not say why', self.wrong(
            good, qemus=('patched', 'stock'))[0])
        self.assertIn('shared_nas was used', self.wrong(
            [outcome('dedup', 1, strategy='shared_nas', reason='so'),
             good[1]], **mixed)[0])


class TestPageCache(base.TestCase):
    """What the guest says it caches; 100 MiB of it were verified."""

    def one(self, pages=100 << 8, outcome_='taken', reason='', seconds=1.0,
            **values):
        return [outcome(
            'page_cache', 50, source, strategy=values.get(
                'strategy', 'page_cache'),
            verified=(100 + guest.ANONYMOUS) << 20,
            page_cache={'outcome': outcome_, 'reason': reason,
                        'seconds': seconds, 'taken_pages': pages})
            for source in ('compute1', 'compute2')]

    def wrong(self, outcomes, lister=None, **values):
        return check.wrong(outcomes, settings.Settings(**values), lister)

    def test_a_whole_list_is_right(self):
        self.assertEqual([], self.wrong(self.one()))

    def test_a_short_list_is_told(self):
        self.assertIn('lists 94 MiB, and 100 MiB are', self.wrong(
            self.one(94 << 8))[0])

    def test_what_was_not_asked_is_told(self):
        found = self.wrong(self.one(0, 'unavailable', 'no port',
                                    strategy='stock'))
        self.assertIn('stock was used', found[0])
        self.assertIn("the guest's list: unavailable: no port", found[1])
        self.assertIn('skipped', self.wrong(
            [outcome('page_cache', 1, strategy='page_cache')])[0])

    def test_few_bytes_are_wanted(self):
        stock = [outcome('stock', 60, source)
                 for source in ('compute1', 'compute2')]
        self.assertIn('page_cache sent', self.wrong(
            stock + self.one())[0])

    def test_a_maltreated_lister_has_to_be_named(self):
        for lister, outcome_ in (('hang', 'timeout'), ('kill', 'unavailable'),
                                 ('break', 'partial')):
            self.assertEqual([], self.wrong(
                self.one(0, outcome_, 'so', strategy='stock'), lister))
            self.assertIn('made to ' + lister, self.wrong(
                self.one(), lister)[0])
            self.assertIn('made to ' + lister, self.wrong(
                self.one(0, outcome_, ''), lister)[0])

    def test_it_may_not_cost_more_than_the_limit(self):
        self.assertIn('asking took 9.0 s', self.wrong(
            self.one(0, 'timeout', 'so', 9.0), 'hang')[0])

    def test_hosts_that_cannot_have_to_say_so(self):
        self.assertIn('does not say why', self.wrong(
            self.one(strategy='stock'), qemus=('patched', 'stock'))[0])


class TestRun(base.TestCase):

    @mock.patch.object(labs, 'missing', autospec=True,
                       return_value='labs need root')
    def test_what_keeps_it_from_running_is_said(self, missing):
        with mock.patch('builtins.print', autospec=True) as printed:
            status = check.run('t', self.temporary_dir(), None, None)
        self.assertEqual(0, status)
        self.assertEqual(
            [mock.call('lab.check ... SKIPPED: labs need root'),
             mock.call('0 passed, 0 failed, 1 skipped')],
            printed.call_args_list)
