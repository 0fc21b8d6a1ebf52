# SPDX-License-Identifier: Apache-2.0
"""The page-cache bench, without a lab."""

import json
import os
import subprocess
from unittest import mock

import fixtures

from benchmarks import runner
from benchmarks.page_cache import __main__ as bench
from benchmarks.page_cache import cells
from benchmarks.page_cache import paper
from benchmarks.page_cache import publish
from benchmarks.page_cache import rival
from benchmarks.page_cache import series
from benchmarks.page_cache import summary
from benchmarks.page_cache import trial
from guests.debian import web
from guests.synthetic.report import GuestReport
from lab import instances
from lab import migrations
from nova_dedup_migrate.tests import base


def record(total, memory, strategy='', recovery=None, **more):
    """:param recovery: what is read of 10 MB/s after the guest resumed"""
    series = [] if recovery is None else [
        {'t': float(t), 'mbps': 10.0 * (recovery if t > 0 else 1),
         'p50': 0.1, 'p99': 0.2 if t > 0 else 0.1, 'requests': 10,
         'errors': 0, 'due': 10} for t in range(-int(total) - 20, 61)]
    return {'repeat': 0, 'total_time_s': total, 'downtime_ms': 100,
            'link_bytes': memory + 5e6, 'memory_bytes': memory,
            'disk_bytes': 5e6, 'strategy': strategy, 'neighbours': 0.1,
            'series': series, 'asked': -total, 'page_cache': None,
            'when': '2026-01-01T00:00:00+00:00', **more}


def listed(seconds, pages, cached, dirty=0, outcome='taken'):
    return {'outcome': outcome, 'lister_seconds': seconds,
            'lister_cpu_seconds': seconds / 2, 'listed_pages': pages,
            'cached_pages': cached, 'dirty_pages': dirty}


class CellsTest(base.TestCase):

    def test_names_are_unique_and_kinds_exist(self):
        for every in (cells.full(), cells.quick()):
            names = [cell.name for cell in every]
            self.assertEqual(len(set(names)), len(names))
            for cell in every:
                for variant in cell.variants:
                    self.assertIn(variant.kind, instances.KINDS)

    def test_the_papers_workloads_are_there(self):
        every = {(cell.workload.name, cell.rate) for cell in cells.full()}
        self.assertLessEqual(set(paper.TRANSFERRED), every)

    def choose(self, *words):
        return bench.chosen_cells(
            runner.parser(bench.PageCache()).parse_args(words))

    def test_choosing(self):
        chosen = self.choose('--only', 'idle, 50',
                             '--variants', '^(stock|both)$')
        self.assertEqual({50}, {cell.rate for cell in chosen})
        self.assertEqual({('stock', 'both')}, {
            tuple(one.name for one in cell.variants) for cell in chosen})
        for option in ('--only', '--variants'):
            self.assertEqual([], self.choose(option, 'no such'))
            self.assertRaises(ValueError, self.choose, option, '(')


class SeriesTest(base.TestCase):

    def reports(self, *figures):
        return [(when, GuestReport(mono_ms=mono, verified=verified))
                for when, mono, verified in figures]

    def test_rates_are_of_the_guests_time(self):
        points = series.of_reports(self.reports(
            (98.0, 5000, 0), (100.0, 6000, 4_000_000),
            (100.1, 6000, 4_000_000), (103.0, 8000, 8_000_000)), 101.0)
        self.assertEqual([(-1.0, 4.0), (2.0, 2.0)],
                         [(one['t'], one['mbps']) for one in points])

    def points(self, **rates):
        return [{'t': float(t), 'mbps': rate} for t, rate in sorted(
            (int(name[1:].replace('_', '-')), rate)
            for name, rate in rates.items())]

    def test_recovery_is_of_the_first_seconds(self):
        points = self.points(t_40=100.0, t_25=8.0, t_20=8.0, t_5=1.0,
                             t1=2.0, t5=6.0, t6=100.0)
        # asked for 15 s before; those 20 s before count
        self.assertEqual(0.5, series.recovery(points, -15.0))

    def test_requests_are_counted_of_those_that_were_due(self):
        points = [{'t': float(t), 'requests': done, 'due': due}
                  for t, done, due in ((-36, 9, 1), (-20, 4, 4), (-16, 0, 0),
                                       (1, 0, 1), (4, 5, 5), (5, 3, 4),
                                       (6, 9, 1))]
        self.assertAlmostEqual(0.8, series.recovery(points, -15.0,
                                                     per_due=True))
        # nothing was due
        self.assertIsNone(series.recovery(points[:3], -15.0, per_due=True))
        self.assertIsNone(series.recovery(points[2:], -15.0, per_due=True))

    def test_a_load_that_stalls_does_not_keep_up(self):
        # one ended in time, and since then nothing has
        points = [{'t': float(t), 'requests': done, 'due': due}
                  for t, done, due in ((-20, 4, 4), (1, 1, 1), (2, 0, 0),
                                       (6, 0, 0), (60, 0, 0))]
        self.assertEqual(0.0, series.recovery(points, -15.0, per_due=True))

    def test_latency_is_of_the_seconds_that_have_any(self):
        points = [{'t': 1.0, 'p99': 0.5}, {'t': 2.0, 'p99': None},
                  {'t': 3.0, 'p99': 1.5}]
        self.assertEqual(1.0, series.mean(points, 0.0, 5.0, 'p99'))
        self.assertIsNone(series.mean(points[1:2], 0.0, 5.0, 'p99'))

    def test_without_points_nothing_is_known(self):
        self.assertIsNone(series.recovery([], -15.0))
        self.assertIsNone(series.recovery(self.points(t1=1.0), -15.0))

    def test_what_is_far_away_is_not_kept(self):
        points = self.points(t_40=1.0, t_30=1.0, t60=1.0, t61=1.0)
        self.assertEqual([-30.0, 60.0], [
            one['t'] for one in series.kept(points, -15.0)])


class RequestsTest(base.TestCase):
    """The guest resumed at 100."""

    def requests(self, *figures):
        return [web.Request(end - latency, end, 1_000_000, outcome)
                for end, latency, outcome in figures]

    def test_points_are_whole_seconds_from_the_resumption(self):
        points = series.of_requests(self.requests(
            (97.2, 0.1, web.GOOD), (98.5, 0.2, web.GOOD),
            (98.9, 0.4, web.GOOD), (99.0, 0.3, web.GOOD),
            (100.5, 9.0, web.FAILED), (101.0, 2.0, web.GOOD),
            (101.5, 0.1, web.GOOD)), 100.0, 97.5, 101.7)
        self.assertEqual(
            # in 97 and in 101 the load did not run all the time
            [{'t': -1, 'mbps': 3.0, 'p50': 0.3, 'p99': 0.4, 'requests': 3,
              'errors': 0, 'due': None},
             {'t': 0, 'mbps': 0.0, 'p50': None, 'p99': None, 'requests': 0,
              'errors': 0, 'due': None},
             {'t': 1, 'mbps': 1.0, 'p50': 2.0, 'p99': 2.0, 'requests': 1,
              'errors': 1, 'due': None}], points)

    def outage(self, *figures, began=90.0, ended=160.0):
        return series.outage(self.requests(*figures), 100.0, began, ended)

    def test_an_outage_is_around_the_resumption(self):
        found = [(end, 0.1, web.GOOD) for end in (
            91.0, 98.0, 98.5, 101.0, 101.5, 104.9, 106.0, 150.0)]
        # 7 s are too early and 44 s too late
        self.assertEqual(3.4, self.outage(*found))
        found[4] = (101.5, 0.1, web.FAILED)
        self.assertEqual(3.9, self.outage(*found))

    def test_an_outage_may_last(self):
        self.assertEqual(61.5, self.outage((98.5, 0.1, web.GOOD)))

    def test_without_a_load_there_is_none(self):
        self.assertIsNone(self.outage(began=101.0))
        self.assertIsNone(self.outage(ended=99.0))


class TrialTest(base.TestCase):

    def test_a_record_is_plain(self):
        moved = migrations.Outcome(
            'both', 'compute1', 'compute2', 12.0, 100, 20, 0, 0, 'uuid',
            'page_cache', memory_bytes=70, pages={'peer': 1})
        kept = trial.record(moved, [], -12.5)
        self.assertEqual(kept, json.loads(json.dumps(kept)))
        self.assertEqual((100, 70, 30), (
            kept['link_bytes'], kept['memory_bytes'], kept['disk_bytes']))

    def test_what_counts_as_failed(self):
        stock, *_, ours = cells.VARIANTS
        good = {'errors': 0, 'verified': 5, 'strategy': ''}
        self.assertEqual('', trial.wrong(good, stock))
        self.assertIn('3 wrong', trial.wrong({**good, 'errors': 3}, ours))
        self.assertIn('nothing', trial.wrong({**good, 'verified': 0}, ours))
        served = {**good, 'answers': 9, 'wrong_answers': 0}
        self.assertEqual('', trial.wrong(served, ours))
        self.assertIn('2 wrong answers', trial.wrong(
            {**served, 'wrong_answers': 2}, ours))
        self.assertIn('no request', trial.wrong(
            {**served, 'answers': 0}, ours))
        other = {**good, 'strategy': 'page_cache'}
        self.assertEqual('', trial.wrong(other, ours))
        self.assertIn('page_cache was used', trial.wrong(other, stock))

    def test_the_rival_has_compressed(self):
        (one,) = (each for each in cells.VARIANTS if each.connections)
        good = {'errors': 0, 'verified': 5, 'strategy': '',
                'pages': {'peer': 1000}, 'memory_bytes': 2_000_000}
        self.assertEqual('', trial.wrong(good, one))
        self.assertIn('not compressed', trial.wrong(
            {**good, 'memory_bytes': 4_100_000}, one))
        self.assertIn('nothing is known', trial.wrong(
            {**good, 'memory_bytes': None}, one))


class Computes:
    """As much of a lab as rival handles."""

    def __init__(self, directory):
        self.computes = [self]
        self.name, self.directory = 'compute1', directory


class RivalTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.programs = self.temporary_dir() / 'bin'
        self.programs.mkdir()
        (self.programs / 'qemu-img').write_text('')
        (self.programs / 'qemu-system-x86_64').write_text(
            '#!/bin/sh\nprintf "%s\n" "$@"\n')
        (self.programs / 'qemu-system-x86_64').chmod(0o755)
        self.host = self.temporary_dir()
        self.libvirt = self.host / 'var/lib/libvirt'
        self.libvirt.mkdir(parents=True)
        (self.libvirt / 'emulators').symlink_to(self.programs)
        self.useFixture(fixtures.MockPatchObject(
            rival.topology, 'libvirtd',
            lambda cloud, name: mock.Mock(programs=self.programs)))

    def test_guests_get_the_options(self):
        lab = Computes(self.host)
        for _ in range(2):
            rival.install(lab)
        self.assertEqual('/var/lib/libvirt/emulators-zstd',
                         os.readlink(self.libvirt / 'emulators'))
        there = self.libvirt / 'emulators-zstd'
        self.assertEqual(self.programs / 'qemu-img',
                         (there / 'qemu-img').readlink())
        said = subprocess.run(
            [there / 'qemu-system-x86_64', '-name', 'a b'],
            capture_output=True, text=True, check=True).stdout
        self.assertEqual(
            ['-global', 'migration.multifd-compression=zstd',
             '-global', 'migration.multifd-zstd-level=1',
             '-name', 'a b'], said.splitlines())
        rival.remove(lab)
        self.assertEqual(self.programs,
                         (self.libvirt / 'emulators').readlink())


class ReportCase(base.TestCase):

    def build(self, **variants):
        cell = cells.Cell(cells.WEB, 100, (*cells.VARIANTS, cells.INDEX))
        return summary.build([cell], {cell.name: {
            name: [one] for name, one in variants.items()}}, 'make it')


class SummaryTest(ReportCase):

    def goals(self, report, name='teleport'):
        return {target: outcome and outcome['reached'] for target, outcome
                in report['cells'][0]['comparisons'][name][
                    'targets'].items()}

    def test_all_are_reached(self):
        report = self.build(
            stock=record(60.0, 500e6),
            **{rival.NAME: record(50.0, 300e6)},
            teleport=record(20.0, 70e6, 'page_cache', 0.97,
                            page_cache=listed(0.1, 96_000, 110_000, 10_000)))
        self.assertEqual(dict.fromkeys(summary.TARGETS, True),
                         self.goals(report))
        self.assertEqual({name: (1, 1) for name in summary.TARGETS},
                         summary.tally(report))

    def test_none_is_reached(self):
        report = self.build(
            stock=record(60.0, 500e6),
            **{rival.NAME: record(50.0, 300e6)},
            teleport=record(61.0, 80e6, 'page_cache', 0.9,
                            page_cache=listed(0.2, 90_000, 100_000)))
        self.assertEqual(dict.fromkeys(summary.TARGETS, False),
                         self.goals(report))

    def test_the_rival_is_compared_with_stock_alone(self):
        report = self.build(
            stock=record(60.0, 500e6), **{rival.NAME: record(40.0, 300e6)},
            both=record(20.0, 70e6, 'page_cache'))
        found = report['cells'][0]['comparisons']
        self.assertEqual({}, found[rival.NAME]['targets'])
        self.assertEqual(0.5, found['both']['rival_ratio']['median'])
        self.assertIs(False, self.goals(report, 'both')['rival'])
        row = publish.main_table(report).splitlines()
        (line,) = (one for one in row if rival.NAME in one)
        self.assertNotIn(' 1.00 ', line)

    def test_without_the_rival_its_target_is_not_known(self):
        report = self.build(stock=record(60.0, 500e6),
                            both=record(20.0, 70e6, 'page_cache'))
        self.assertIsNone(self.goals(report, 'both')['rival'])
        self.assertEqual((0, 0), summary.tally(report)['rival'])

    def test_a_broken_list_says_nothing_about_the_lister(self):
        report = self.build(
            stock=record(60.0, 500e6),
            teleport=record(20.0, 70e6, page_cache=listed(
                0.1, 10, 100, outcome='partial')))
        self.assertIsNone(self.goals(report)['coverage'])

    def test_what_the_index_found(self):
        name = cells.INDEX.name
        found = {'outcome': 'done', 'pages': 1000, 'found_pages': 750,
                 'read_bytes': 3e6, 'seconds': 2.5}
        report = self.build(
            stock=record(60.0, 500e6),
            **{name: record(20.0, 70e6, 'page_cache', content_index=found)})
        self.assertIs(True, self.goals(report, name)['never slower'])
        (line,) = (one for one in publish.index_table(report).splitlines()
                   if name in one)
        self.assertEqual(['1000', '0.750', '3', '2.5'], line.split()[-4:])
        self.assertEqual('Not measured.', publish.index_table(
            self.build(stock=record(60.0, 500e6))))

    def test_stock_without_caches_has_no_targets(self):
        report = self.build(stock=record(60.0, 500e6),
                            **{'caches dropped': record(30.0, 100e6)})
        self.assertEqual({}, self.goals(report, 'caches dropped'))

    def test_latency_is_told_before_and_after(self):
        found = self.build(stock=record(60.0, 500e6, recovery=1.0))
        found = found['cells'][0]['variants']['stock']
        self.assertEqual((0.1, 0.2, 0.2), tuple(round(
            found[name]['median'], 6) for name in (
                'p99_before', 'p99_first', 'p99_after')))

    def test_a_database_counts_transactions(self):
        found = summary.around(record(60.0, 500e6, recovery=0.5), 'db')
        self.assertEqual(1.0, found['recovery'])

    def test_failed_runs_are_named(self):
        report = self.build(stock={
            'failed': 'LabError: so', 'repeat': 0,
            'when': '2026-01-01T00:00:00+00:00'})
        self.assertEqual(
            ['Debian, web server, 100 Mbit/s, stock: LabError: so'],
            summary.failures(report))
        self.assertIn('failed', publish.main_table(report))


class PublishTest(ReportCase):

    def test_files(self):
        report = self.build(
            stock=record(60.0, 500e6, recovery=0.9, outage_s=1.25,
                         failed_requests=0),
            teleport=record(20.0, 70e6, 'stock', 0.97,
                            page_cache=listed(0.1, 96_000, 100_000)))
        directory = self.temporary_dir() / 'results'
        publish.write(report, directory)
        main = (directory / 'page-cache-main.inc').read_text()
        self.assertIn('teleport [#stock]_', main)
        self.assertIn('.. [#stock] ', main)
        self.assertIn('0.14', main)
        self.assertIn('487', main)
        self.assertIn('page-cache-debian-web-server-100-mbit-s.svg',
                      (directory / 'page-cache-series.inc').read_text())
        load = (directory / 'page-cache-load.inc').read_text()
        self.assertIn(' 1.25 ', load)
        self.assertEqual(report, json.loads(
            (directory / 'page-cache.json').read_text()))
