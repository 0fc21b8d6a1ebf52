# SPDX-License-Identifier: Apache-2.0
import importlib.util
import unittest
from unittest import mock

import fixtures

if importlib.util.find_spec('openstack') is None:
    raise unittest.SkipTest('openstacksdk is not installed')

from benchmarks import lab_disks
from lab import migrations
from nova_dedup_migrate.tests import base
from testkit import results


def variant(disk=500, seconds=60.0, mirrored=1, **values):
    disks = [] if mirrored is False else [{
        'target': 'vda', 'mirrored': mirrored, 'build_seconds': 3.0,
        'sources': {'local': 7_000_000},
        'reason': '' if mirrored is not None else 'it does not pay'}]
    return lab_disks.Variant([migrations.Outcome(
        'dedup', 'one', 'two', seconds, disk + 100, 50, 1, 0, 'uuid',
        memory_bytes=100, disks=disks, **{'compared': 1 << 30, **values})])


class JudgeTest(base.TestCase):

    def wrong(self, **found):
        rows = results.Results('x')
        lab_disks.judge({'stock': variant(mirrored=False),
                         'stock-overlay': variant(600, mirrored=False),
                         **found}, rows)
        return [row.name for row in rows.rows if not row.ok]

    def test_right(self):
        self.assertEqual([], self.wrong(
            base=variant(100, 30.0), prepared=variant(10, 20.0),
            image=variant(20, 90.0),
            overlay=variant(500, 50.0, mirrored=None)))

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
        lab_disks.judge({'prepared': found}, rows)
        values = {row.name: row.value for row in rows.rows}
        self.assertEqual((5.0, 3.0, 7.0), (
            values['prepared: preparing'],
            values['prepared: preparing, on the link'],
            values['prepared: from local']))


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

    def migrate(self, cloud, kind, server):
        self.done.append('migrate')
        self.cached = self.count()
        return variant().outcomes[0]

    def count(self):
        return [len(list((host.directory / lab_disks._CACHE).iterdir()))
                for host in self.cloud.computes]

    def test_order(self):
        lab_disks.run(self.cloud, 'image', 1, mock.Mock())
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
            lab_disks.measure(self.cloud, ('base', 'image', 'overlay'), 1,
                              mock.Mock())
        self.assertEqual([('auto', True), ('always', True),
                          ('auto', False)], seen)
        self.assertEqual(usual, self.cloud.settings)
        self.assertEqual(3, start.call_count)

    def test_others_keep_their_caches(self):
        lab_disks.run(self.cloud, 'base', 1, mock.Mock())
        self.assertEqual(['rewrite', 'migrate'], self.done)
        self.assertEqual([1, 1], self.cached)
