# SPDX-License-Identifier: Apache-2.0
"""What holds if a collector has said nothing, and the bounds of the rest."""

import dataclasses
import math

from nova_dedup_migrate.conf import dedup_migrate
from nova_dedup_migrate.planner import disks
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import model
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.tests import base


def _defaults(cls):
    """Return {field: default} of those that have one."""
    return {field.name: field.default for field in dataclasses.fields(cls)
            if field.default is not dataclasses.MISSING}


class NothingIsKnownTest(base.TestCase):
    """0, None and False say that nothing was found out, or was set."""

    def _blank(self, cls, **other):
        for name, default in _defaults(cls).items():
            expected = other.pop(name, None)
            if expected is not None:
                self.assertEqual(expected, default, name)
            else:
                self.assertFalse(default, name)
        self.assertEqual({}, other)

    def test_facts(self):
        self._blank(facts.Disk)
        self._blank(facts.End)
        self._blank(facts.Link)
        self._blank(facts.Guest, page_size=4096,
                    map_reason='the guest was not asked for its page cache')

    def test_options(self):
        """Nova's highest downtime limit is 500 ms by default."""
        self._blank(
            facts.Options, downtime_ms=500, adapt_downtime_limit=True,
            max_extra_downtime_ms=50.0, strategy='auto',
            strategy_source='nova.conf', min_gain=0.05, fetch_share=1.0,
            compression='auto', compression_source='nova.conf')
        self.assertEqual(0.15, facts.SWITCH_OVER)

    def test_options_are_those_of_the_configuration(self):
        ours = {option.dest: option.default
                for option in dedup_migrate.ALL_OPTS}
        for name, option in (
                ('strategy', 'strategy'), ('min_gain', 'min_gain'),
                ('compression', 'compression'),
                ('adapt_downtime_limit', 'adapt_downtime_limit'),
                ('max_extra_downtime_ms', 'max_extra_downtime'),
                ('fetch_iops', 'fetch_iops'),
                ('defer_redirtied_pages', 'defer_redirtied_pages')):
            self.assertEqual(ours[option], getattr(facts.Options, name),
                             name)

    def test_plan(self):
        self._blank(plan.Plan, copy='shared', resend=True)
        self._blank(plan.PlanDisk, use=True)
        self._blank(plan.Prediction, converges=True, end='pre-copy')

    def test_model(self):
        self._blank(
            model.Case, working_set=math.inf, page_size=4096,
            downtime=((0.0, 0.3),), max_downtime=math.inf, left=0.5,
            devices=0.02, share=1.0, compressed_rate=math.inf)
        self._blank(model.Outcome)

    def test_observation(self):
        self._blank(replan.Observation, share=1.0, active=True)
        self._blank(replan.Decision, left=math.inf)

    def test_disk(self):
        self._blank(disks.DiskFacts)


class BandTest(base.TestCase):

    def test_bounds_belong_to_it(self):
        band = plan.Band(1.0, 2.0, 3.0)
        for value, inside in ((0.9, False), (1.0, True), (3.0, True),
                              (3.1, False)):
            self.assertEqual(inside, value in band, value)

    def test_endless(self):
        self.assertTrue(plan.Band(1.0, math.inf, math.inf).endless)
        # it may take for ever, but that is not likely
        self.assertFalse(plan.Band(1.0, 2.0, math.inf).endless)


class BoundsTest(base.TestCase):

    def test_constants(self):
        self.assertEqual(72057594037927936.0, normal.MAX_BYTES)
        self.assertEqual((1e12, 1e9), (normal.MAX_RATE, normal.MAX_TIME))
        self.assertEqual((512, 1000), (normal.MAX_DISKS, normal.MAX_SHARERS))

    def test_processors(self):
        for value, expected in ((None, None), (2.5, 2.5), (-1, 0.0),
                                (1e9, 65536.0)):
            found = normal.normal(facts.Facts(
                guest=facts.Guest(1, 1, 1, 1.0), disks=(),
                source=facts.End('a', True, processors=value),
                destination=facts.End('b', True, processors=value)))
            self.assertEqual((expected, expected), (
                found.source.processors, found.destination.processors))

    def _options(self, **changes):
        return normal.normal(facts.Facts(
            guest=facts.Guest(1, 1, 1, 1.0), disks=(),
            source=facts.End('a', True), destination=facts.End('b', True),
            options=facts.Options(**changes))).options

    def test_options(self):
        found = self._options(
            downtime_steps=((0, 50),) * 2000, multifd_channels=1000,
            timeout=-1, min_gain=7, switch_over=-1, downtime_ms=1e300,
            max_extra_downtime_ms=1e300)
        self.assertEqual(((0.0, 50.0),) * 1000, found.downtime_steps)
        self.assertEqual(
            (255, None, 1.0, 0.0, 1e9, 1e9),
            (found.multifd_channels, found.timeout, found.min_gain,
             found.switch_over, found.downtime_ms,
             found.max_extra_downtime_ms))

    def _guest(self, **changes):
        return normal.normal(facts.Facts(
            guest=facts.Guest(**{'memory': 1 << 40, 'resident': 1 << 40,
                                 'hint_pages': 0, 'dirty_rate': 0.0,
                                 **changes}),
            disks=(), source=facts.End('a', True),
            destination=facts.End('b', True))).guest

    def test_guest(self):
        for size, expected in ((8192, 8192), (16384, 16384), (65536, 65536),
                               (4095, 4096), (1 << 21, 4096)):
            self.assertEqual(expected, self._guest(page_size=size).page_size)
        # what it has listed and what was found count as hints
        found = self._guest(hint_pages=7, map_pages=9, index_pages=8)
        self.assertEqual((7, 7, 7), (found.hint_pages, found.map_pages,
                                     found.index_pages))
        found = self._guest(hint_pages=7, map_pages=5, index_pages=3)
        self.assertEqual((5, 3), (found.map_pages, found.index_pages))
        self.assertEqual(500, len(self._guest(
            map_reason='x' * 1000).map_reason))
        self.assertEqual(1e12, self._guest(dirty_rate=1e300).dirty_rate)
        self.assertEqual(1e12, self._guest(
            disk_write_rate=1e300).disk_write_rate)

    def test_hints_by_page_size(self):
        """No more than memory has pages, the last one whole."""
        self.assertEqual(2, self._guest(
            memory=3 * 8192 - 1, page_size=8192, hint_pages=99).hint_pages)
