# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import importlib.util
import json
import unittest
from unittest import mock

import fixtures

if importlib.util.find_spec('openstack') is None:
    raise unittest.SkipTest('openstacksdk is not installed')

from benchmarks import lab_disk_services as services
from benchmarks import lab_disks
from guests import errors as guest_errors
from guests.debian import client as debian
from lab import migrations
from nova_dedup_migrate.tests import base
from testkit import results


def variant(disk=500, seconds=60.0, mirrored=1, **values):
    disks = [] if mirrored is False else [{
        'target': 'vda', 'data': 9, 'mirrored': mirrored,
        'build_seconds': 3.0,
        'sources': {'local': 7_000_000},
        'reason': '' if mirrored is not None else 'it does not pay'}]
    return lab_disks.Variant([migrations.Outcome(
        'dedup', 'one', 'two', seconds, disk + 100, 50, 1, 0, 'uuid',
        memory_bytes=100, disks=disks, **{'compared': 1 << 30, **values})])


class JudgeTest(base.TestCase):

    def wrong(self, **found):
        rows = results.Results('x')
        lab_disks.judge({
            'stock': variant(mirrored=False),
            'stock-overlay': variant(600, mirrored=False),
            'stock-busy': variant(mirrored=False, compared=0),
            **found}, rows)
        return [row.name.removeprefix('100 Mbit/s, ')
                for row in rows.rows if not row.ok]

    def test_right(self):
        self.assertEqual([], self.wrong(
            base=variant(100, 30.0), prepared=variant(10, 20.0),
            image=variant(20, 90.0),
            overlay=variant(500, 50.0, mirrored=None),
            busy=variant(100, 30.0, compared=0)))

    def test_a_busy_guest_verifies_its_files(self):
        found = variant(100, 30.0, compared=0)
        found.outcomes[0] = dataclasses.replace(found.outcomes[0], errors=1)
        self.assertEqual(['busy: wrong pages of memory and of files'],
                         self.wrong(busy=found))

    def test_a_guest_that_serves(self):
        def serves(*shares, disk=100, seconds=30.0, **values):
            found = variant(disk, seconds, compared=0, **values)
            found.served = [services.Served(share, 0.1, 0.2)
                            for share in shares]
            return found

        stock = {'stock-web': serves(0.5, disk=500, seconds=60.0,
                                     mirrored=False)}
        self.assertEqual([], self.wrong(web=serves(0.9, 1.0), **stock))
        self.assertEqual(['web: requests served, of before'],
                         self.wrong(web=serves(0.9, 0.99), **stock))
        found = serves(1.0)
        found.outcomes[0] = dataclasses.replace(found.outcomes[0],
                                                verified=0)
        self.assertEqual(['web: wrong pages of memory and of files'],
                         self.wrong(web=found, **stock))

    def test_downtime(self):
        """Of the medians."""
        def moved(*times, seconds=1.0):
            found = variant(seconds, seconds)
            found.outcomes = [dataclasses.replace(
                found.outcomes[0], downtime_ms=time) for time in times]
            return found

        stock = moved(100, 110, 900, seconds=60.0)
        self.assertEqual([], self.wrong(
            stock=stock, base=moved(130, 5, 999)))
        self.assertEqual(['base: downtime, median'], self.wrong(
            stock=stock, base=moved(131, 131, 5)))
        self.assertEqual(['base: downtime, median'], self.wrong(
            stock=stock, base=moved(None)))
        self.assertEqual([], self.wrong(
            stock=moved(None, seconds=60.0), base=moved(None)))

    def test_a_variant_without_a_migration(self):
        """It has no rows, and nothing is compared with it."""
        self.assertEqual([], self.wrong(
            stock=lab_disks.Variant(), base=variant(9999, 9999.0)))
        self.assertEqual([], self.wrong(base=lab_disks.Variant()))

    def test_too_many_bytes_and_too_slow(self):
        self.assertEqual(['base: disk on the link', 'base: time'],
                         self.wrong(base=variant(500, 60.0)))

    def test_image_store_was_of_no_use(self):
        self.assertEqual(
            ['image: disk on the link', 'image: built'],
            self.wrong(image=variant(500, 50.0, mirrored=None)))

    def test_a_disk_differs(self):
        self.assertEqual(
            ['base: bytes of disks that were compared'],
            self.wrong(base=variant(1, 1.0, differing=('at 0',))))
        self.assertEqual(
            ['base: bytes of disks that were compared'],
            self.wrong(base=variant(1, 1.0, compared=0)))

    def test_the_planner_is_wrong(self):
        self.assertEqual(['overlay: disk on the link', 'overlay: time'],
                         self.wrong(overlay=variant(700)))
        self.assertEqual(['base: built'],
                         self.wrong(base=variant(1, 1.0, mirrored=None)))

    def test_sources(self):
        rows = results.Results('x')
        found = variant(1, 1.0)
        found.prepared = [(4.0, 2_000_000), (6.0, 4_000_000)]
        lab_disks.judge({'prepared': found}, rows, 50)
        values = {row.name: row.value for row in rows.rows}
        self.assertEqual((5.0, 3.0, 7.0), (
            values['50 Mbit/s, prepared: preparing'],
            values['50 Mbit/s, prepared: preparing, on the link'],
            values['50 Mbit/s, prepared: from local']))


class MainTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.top = self.temporary_dir()
        self.cloud = mock.Mock(settings=lab_disks.settings.Settings('local'))
        self.links = []
        self.cloud.computes = [mock.Mock()]
        self.cloud.computes[0].link.return_value.limit = (
            lambda send, receive: self.links.append((send, receive)))
        for where, name, value in (
                (lab_disks.settings, 'TOP', self.top),
                (lab_disks, 'opened',
                 lambda *how: contextlib.nullcontext(self.cloud)),
                (lab_disks.nova, 'restart_computes', mock.Mock()),
                (lab_disks.instances, 'cache_image', mock.Mock())):
            self.useFixture(fixtures.MockPatchObject(where, name, value))
        self.useFixture(fixtures.MockPatch('builtins.print'))

    def run_(self, run, *words):
        """Return the exit status and the rows."""
        with mock.patch.object(lab_disks, 'run', run):
            status = lab_disks.main(list(words))
        return status, self.rows()

    def rows(self):
        report = json.loads(
            (self.top / 'build/lab-disks/report.json').read_text())
        return {row['name']: row for row in report['rows']}

    def test_links_one_after_the_other(self):
        seen = []

        def run(cloud, name, count, write, progress, found):
            seen.append((len(self.links), name, count, write))
            found.outcomes.extend(variant(mirrored=False).outcomes)

        status, rows = self.run_(
            run, '--link', '50,100', '--variants', 'stock,stock-busy',
            '--write', '300', '--quick')
        self.assertEqual(0, status)
        self.assertEqual([(1, 'stock', 1, 300), (1, 'stock-busy', 1, 300),
                          (2, 'stock', 1, 300), (2, 'stock-busy', 1, 300)],
                         seen)
        self.assertEqual([(6_250_000, 6_250_000),
                          (12_500_000, 12_500_000)], self.links)
        self.assertEqual(4, rows['migrations that ended']['value'])
        self.assertIn('50 Mbit/s, stock: time', rows)
        self.assertIn('100 Mbit/s, stock-busy: time', rows)

    def test_quick_has_no_debian_guests(self):
        self.assertFalse(set(lab_disks.parse(['--quick']).variants)
                         & set(services.LOADS))
        self.assertEqual(lab_disks.VARIANTS, lab_disks.parse([]).variants)

    def test_debian_guests(self):
        """They have an image of their own in the caches."""
        seen = []

        @contextlib.contextmanager
        def guest(cloud, name, kind, load):
            seen.append((name, kind, load))
            yield lambda: (variant(mirrored=1).outcomes[0],
                           services.Served(1.0, 0.1, 0.1))

        with mock.patch.object(lab_disks.guest, 'upload_debian') as uploaded, \
                mock.patch.object(services, 'guest', guest):
            _, rows = self.run_(None, '--variants', 'stock-web,db',
                                '--count', '2')
        uploaded.assert_called_once_with(self.cloud)
        lab_disks.instances.cache_image.assert_called_once_with(
            self.cloud, lab_disks.guests.boot_debian)
        self.assertEqual([('disks-stock-web', 'stock', 'web'),
                          ('disks-db', 'dedup', 'db')], seen)
        self.assertEqual(4, rows['migrations that ended']['value'])
        self.assertEqual(
            1.0, rows['100 Mbit/s, db: requests served, of before']['value'])

    def failing(self, error):
        """Return a run whose second variant fails after a migration."""
        def run(cloud, name, count, write, progress, found):
            found.outcomes.extend(variant(mirrored=False).outcomes)
            if name == 'base':
                raise error

        return run

    def test_a_migration_that_fails(self):
        """All that there is by then is in the report."""
        for error, status, problem in (
                (lab_disks.errors.LabError('why'), 1, 'LabError: why'),
                (RuntimeError('why'), 1, 'RuntimeError: why'),
                (KeyboardInterrupt(), 130, 'interrupted')):
            found, rows = self.run_(self.failing(error), '--quick')
            self.assertEqual(status, found)
            self.assertEqual((problem, False), (
                rows['migrations that ended']['value'],
                rows['migrations that ended']['ok']))
            self.assertIn('100 Mbit/s, stock: time', rows)
            self.assertIn('100 Mbit/s, base: time', rows)
            self.assertNotIn('100 Mbit/s, prepared: time', rows)

    def test_a_fault_of_the_bench(self):
        self.assertRaises(KeyError, self.run_, self.failing(KeyError('x')),
                          '--quick')
        self.assertIn('100 Mbit/s, stock: time', self.rows())
        self.assertFalse(self.rows()['migrations that ended']['ok'])

    def test_malformed(self):
        for words in (['--variants', 'x'], ['--link', '0'], ['--link', 'x'],
                      ['--count', '0'], ['--write', '0']):
            with mock.patch('sys.stderr'):
                self.assertRaises(SystemExit, lab_disks.parse, words)


class ImageTest(base.TestCase):
    """The destination of the variant image has nothing but Glance."""

    def setUp(self):
        super().setUp()
        self.done = []
        top = self.temporary_dir()
        self.cloud = mock.Mock()
        self.cloud.computes = hosts = []
        for name in 'compute1', 'compute2':
            host = mock.Mock(directory=top / name)
            host.name = name
            hosts.append(host)
            cache = host.directory / lab_disks._CACHE
            cache.mkdir(parents=True)
            (cache / ('ab' * 20)).write_bytes(b'image')
        self.cloud.host.side_effect = lambda name: {
            host.name: host for host in hosts}[name]
        self.server = mock.Mock(id='x', compute_host='compute1',
                                task_state=None)
        connection = mock.Mock()
        connection.compute.get_server.return_value = self.server
        connection.compute.create_server_image.side_effect = (
            lambda *args, **how: self.done.append('snapshot')
            or mock.Mock(id='image'))
        connection.image.delete_image.side_effect = (
            lambda image, **how: self.done.append('delete'))
        for where, name, value in (
                (lab_disks.client, 'connect', lambda cloud: connection),
                (lab_disks, '_terminal', mock.Mock()),
                (lab_disks.console, 'ready', mock.Mock()),
                (lab_disks, '_rewrite',
                 lambda *args: self.done.append('rewrite')),
                (lab_disks.instances, 'boot', mock.Mock()),
                (lab_disks.instances, 'delete', mock.Mock()),
                (lab_disks.instances, 'wait_active',
                 lambda *args: self.server),
                (lab_disks.migrations, 'migrate', self.migrate)):
            self.useFixture(fixtures.MockPatchObject(where, name, value))

    def migrate(self, cloud, kind, server, write=None):
        self.done.append('migrate' if write is None
                         else 'migrate, %s %d' % (kind, write))
        self.cached = self.count()
        return variant().outcomes[0]

    def count(self):
        return [len(list((host.directory / lab_disks._CACHE).iterdir()))
                for host in self.cloud.computes]

    def run_(self, name):
        found = lab_disks.Variant()
        lab_disks.run(self.cloud, name, 1, 400, mock.Mock(), found)
        return found

    def test_busy(self):
        self.run_('busy')
        self.run_('stock-busy')
        self.assertEqual(['rewrite', 'migrate, dedup 400',
                          'rewrite', 'migrate, stock 400'], self.done)

    def test_order(self):
        found = self.run_('image')
        self.assertEqual(1, len(found.outcomes))
        self.assertEqual(['rewrite', 'snapshot', 'rewrite', 'migrate',
                          'delete'], self.done)
        self.assertEqual([1, 0], self.cached)
        self.assertEqual([1, 1], self.count())

    def test_settings(self):
        """Each variant has its own; the usual ones are back at the end."""
        usual = lab_disks.settings.Settings('local', disks='auto', flat=True)
        self.cloud.settings = usual
        seen = []
        with mock.patch.object(lab_disks.nova, 'restart_computes') as start, \
                mock.patch.object(lab_disks.instances, 'cache_image'), \
                mock.patch.object(lab_disks, 'run', lambda cloud, *how:
                                  seen.append((cloud.settings.disks,
                                               cloud.settings.flat))):
            lab_disks.measure(self.cloud, lab_disks.parse(
                ['--variants', 'base,image,overlay']), mock.Mock(), {})
        self.assertEqual([('auto', True), ('always', True),
                          ('auto', False)], seen)
        self.assertEqual(usual, self.cloud.settings)
        self.assertEqual(3, start.call_count)

    def test_others_keep_their_caches(self):
        self.run_('base')
        self.assertEqual(['rewrite', 'migrate'], self.done)
        self.assertEqual([1, 1], self.cached)


class ServedTest(base.TestCase):

    def test_rate(self):
        """The guest's clock stands still while it is stopped."""
        found = services.served(
            debian.Window(0.0, 15.0, requests=300, p99=0.25),
            debian.Window(15.0, 75.0, requests=600, p99=0.5))
        self.assertEqual(services.Served(0.5, 0.25, 0.5), found)

    def test_nothing_before(self):
        self.assertRaises(guest_errors.GuestFailed, services.served,
                          debian.Window(0.0, 15.0),
                          debian.Window(15.0, 75.0, requests=600))
