# SPDX-License-Identifier: Apache-2.0
import json
from unittest import mock

import fixtures
from nova import objects
import nova.conf
from nova.virt.libvirt import driver as libvirt_driver
from oslo_config import fixture as config_fixture

from nova_dedup_migrate.compute import disk_filler
from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import stored_images
from nova_dedup_migrate.conf import dedup_migrate
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes

CONF = nova.conf.CONF
DISK = """<disk type='%(type)s' device='disk'><source file='%(path)s'/>
<target dev='%(target)s'/><alias name='virtio-%(target)s'/></disk>"""
IMAGE = '33333333-0000-4000-8000-000000000003'
OTHER = '33333333-0000-4000-8000-000000000004'


class DiskFillerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        dedup_migrate.register_opts(CONF)
        conf = self.useFixture(config_fixture.Config(CONF))
        conf.config(instances_path='/var/lib/nova/instances')
        conf.config(group='dedup_migrate',
                    disk_neighbours=['near', 'here', 'there'],
                    disk_image_store=False)
        self.conf = conf
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        self.agents.survey.return_value = survey_objects.DedupSurveyReply(
            known=False)
        self.driver = mock.create_autospec(libvirt_driver.LibvirtDriver,
                                           instance=True)
        self.driver._host = mock.Mock(spec=['get_guest'])
        self.guest = mock.create_autospec(guests.InstanceGuest,
                                          instance=True)
        self.infos = []
        self.xml = ''
        self.add('vda', '/src/%s/disk' % fakes.INSTANCE, 'qcow2',
                 '/src/_base/0123')
        self.add('vdb', '/src/%s/disk.eph0' % fakes.INSTANCE, 'raw', '')
        self.driver.get_instance_disk_info.side_effect = (
            lambda instance: json.dumps(self.infos))
        self.driver._live_migration_copy_disk_paths.return_value = (
            [], ['vda', 'vdb'])
        self.guest.domain.return_value.XMLDesc.side_effect = (
            lambda flags: '<domain><devices>%s</devices></domain>'
            % self.xml)
        instance = objects.Instance(uuid=fakes.INSTANCE, project_id='p1',
                                    image_ref=IMAGE)
        self.filler = disk_filler.DiskFiller(
            self.driver, self.agents, self.guest, instance,
            objects.LibvirtLiveMigrateData(
                instance_relative_path=fakes.INSTANCE),
            fakes.operation(), {'there': 5e6}.get,
            mock.sentinel.context)

    def add(self, target, path, form, backing):
        self.infos.append({'path': path, 'type': form,
                           'backing_file': backing})
        self.xml += DISK % {'type': 'file', 'path': path, 'target': target}

    def watched(self, **given):
        return watch_objects.DedupWatchReply(**{
            'state': 'watching', 'size': 1 << 30, 'granularity': 32768,
            'watch': 'ab' * 32, **given})

    def test_targets(self):
        self.assertEqual(('vda', 'vdb'), tuple(self.filler.targets()))
        self.assertEqual(
            ['here', 'there'],
            [call.args[1] for call in self.agents.hello.mock_calls])

    def test_what_is_not_built(self):
        """What Nova does not copy, or has in another format."""
        self.add('vdc', '/src/other/disk.lvm', 'lvm', '')
        self.driver._live_migration_copy_disk_paths.return_value = (
            [], ['vda', 'vdc'])
        self.assertEqual(('vda',), tuple(self.filler.targets()))
        self.conf.config(force_raw_images=False)
        self.filler._files.clear()
        self.assertEqual((), tuple(self.filler.targets()))

    def test_watched_above_the_base(self):
        self.filler.targets()
        self.agents.take_replica.return_value = ''
        for target, above in ('vda', True), ('vdb', False):
            self.filler.watch(target)
            _, host, request = self.agents.watch_disk.call_args.args
            self.assertEqual(('here', target, above, None),
                             (host, request.target, request.above_base,
                              request.resume))

    def test_watch_of_a_replica(self):
        """It goes on, after the destination has handed its journal over."""
        self.filler.targets()
        self.agents.take_replica.return_value = 'ab' * 32
        self.filler.watch('vda')
        self.assertEqual(['take_replica', 'watch_disk'], [
            call[0] for call in self.agents.mock_calls
            if call[0] in ('take_replica', 'watch_disk')])
        _, host, request = self.agents.take_replica.call_args.args
        self.assertEqual(('there', 'vda', fakes.INSTANCE), (
            host, request.target, request.instance_uuid))
        self.assertEqual('ab' * 32,
                         self.agents.watch_disk.call_args.args[2].resume)
        found = self.filler.facts('vda', self.watched(size=100, dirty=25))
        self.assertEqual(0.75, found.current)

    def test_where_it_is_built(self):
        """Where Nova's pre_live_migration has made the file."""
        self.filler.targets()
        self.filler.build('vda', self.watched(), 60.0)
        _, host, request, _ = self.agents.fill_disk.call_args.args
        self.assertEqual('there', host)
        self.assertEqual(
            ('/var/lib/nova/instances/%s/disk' % fakes.INSTANCE, 'qcow2'),
            (request.image.path, request.image.format))
        self.assertEqual(
            [('/var/lib/nova/instances/_base/0123', 'raw')],
            [(image.path, image.format) for image in request.backing])
        self.assertEqual(('p1', [IMAGE], ['near'], 'here'),
                         (request.project_id, request.images,
                          request.neighbours, request.source))
        self.filler.build('vdb', self.watched(), 60.0)
        request = self.agents.fill_disk.call_args.args[2]
        self.assertEqual(([], 'raw'), (request.backing,
                                       request.image.format))

    def test_facts(self):
        self.agents.have_blocks.side_effect = (
            lambda context, host, request: {'near': 2, 'there': 1}[host])
        found = self.filler.facts('vda', self.watched(
            data=77, sample=['ab' * 32] * 3))
        self.assertEqual((77, 3, 2, 5e6),
                         (found.data, found.sampled, found.found,
                          found.link_rate))
        self.conf.config(group='dedup_migrate', link_bandwidth=8.0)
        found = self.filler.facts('vda', self.watched())
        self.assertEqual((0, 8e6), (found.found, found.link_rate))

    def stored(self, found=5, **changes):
        """Have images, of which an agent finds some of 10 blocks."""
        self.conf.config(group='dedup_migrate', disk_image_store=True)
        self.filler.targets()
        self.agents.have_blocks.return_value = 2
        self.find = self.useFixture(fixtures.MockPatchObject(
            stored_images, 'find', return_value=stored_images.Found(
                image_objects.DedupImageStore(
                    endpoint='https://glance', token='secret', images=[
                        image_objects.DedupStoredImage(image=each, size=9)
                        for each in (IMAGE, OTHER)]),
                'one is qcow2'))).mock
        self.agents.disk_sample.return_value = (
            image_objects.DedupDiskSample(digests=['ab' * 32], offsets=[0]))
        self.agents.try_images.return_value = (
            image_objects.DedupTryImagesReply(**{
                'tried': 10, 'found': found, 'rate': 3e7,
                'images': [OTHER], **changes}))
        return self.watched(sample=['ab' * 32] * 20)

    def built(self, watch, target='vda'):
        self.filler.build(target, watch, 60.0)
        return self.agents.fill_disk.call_args.args[3]

    def test_images_are_tried(self):
        watch = self.stored()
        found = self.filler.facts('vda', watch)
        self.assertEqual((10, 5, 3e7, 'one is qcow2'), (
            found.sampled, found.found, found.fetch_rate,
            found.image_store))
        self.find.assert_called_once_with(
            mock.sentinel.context, self.filler._instance, 1 << 30)
        self.assertEqual(('here', fakes.MIGRATION, 'vda'),
                         self.agents.disk_sample.call_args.args[1:])
        _, host, request = self.agents.try_images.call_args.args
        self.assertEqual(('there', 1 << 30), (host, request.size))
        # and those that have something are read
        self.assertEqual([OTHER], [each.image for each in
                                   self.built(watch).images])

    def test_more_is_near(self):
        found = self.filler.facts('vda', self.stored(found=1))
        self.assertEqual((20, 2, None), (found.sampled, found.found,
                                         found.fetch_rate))

    def test_images_have_nothing(self):
        watch = self.stored(found=0, images=[], reason='HTTP 401')
        found = self.filler.facts('vda', watch)
        self.assertEqual('one is qcow2; HTTP 401', found.image_store)
        self.assertIsNone(self.built(watch))

    def test_older_agent(self):
        watch = self.stored()
        self.agents.try_images.side_effect = errors.AgentVersion(
            'there', 'it is of another version')
        found = self.filler.facts('vda', watch)
        self.assertEqual((20, 2, None), (found.sampled, found.found,
                                         found.fetch_rate))
        self.assertIn('of another version', found.image_store)
        self.assertIsNone(self.built(watch))

    def test_no_images(self):
        watch = self.stored()
        self.find.return_value = stored_images.Found(reason='no token')
        self.assertEqual('no token',
                         self.filler.facts('vda', watch).image_store)
        self.agents.try_images.assert_not_called()
        self.assertIsNone(self.built(watch))

    def test_ephemeral_disk(self):
        """It was not made of an image."""
        watch = self.stored()
        self.filler.facts('vdb', watch)
        self.find.assert_not_called()
        self.assertIsNone(self.built(watch, 'vdb'))

    def test_switched_off(self):
        watch = self.stored()
        self.conf.config(group='dedup_migrate', disk_image_store=False)
        self.filler.facts('vda', watch)
        self.find.assert_not_called()
        self.assertIsNone(self.built(watch))

    def test_measured(self):
        """What the agent has measured, before what is remembered."""
        self.agents.have_blocks.return_value = 0
        self.agents.survey.return_value = survey_objects.DedupSurveyReply(
            known=True, link_rate=7e6, disk_write_rate=3e5)
        for target in 'vda', 'vdb':
            found = self.filler.facts(target, self.watched())
            self.assertEqual((7e6, 3e5), (found.link_rate,
                                          found.write_rate))
        _, host, request = self.agents.survey.call_args.args
        self.assertEqual(('here', 'there'), (host, request.destination))
        self.agents.survey.assert_called_once()

    def test_show(self):
        """Nova's record of the migration; it need not be saved."""
        record = objects.Migration(uuid=fakes.MIGRATION)
        self.filler._migrate_data.migration = record
        saved = []
        save = self.useFixture(fixtures.MockPatchObject(
            objects.Migration, 'save', autospec=True,
            side_effect=lambda self: saved.append(
                (self.disk_total, self.disk_processed,
                 self.disk_remaining)))).mock
        now = self.useFixture(fixtures.MockPatchObject(
            disk_filler.time, 'monotonic', autospec=True,
            return_value=100.0)).mock
        self.filler.show(10, 9)
        now.return_value = 104.0
        self.filler.show(10, 5)
        now.return_value = 105.0
        self.filler.show(10, 4)
        self.assertEqual([(10, 1, 9), (10, 6, 4)], saved)
        save.side_effect = ValueError('the database is away')
        now.return_value = 111.0
        self.filler.show(10, 1)
        self.assertEqual(3, save.call_count)

    def test_used(self):
        self.filler.targets()
        self.guest.disk_watches.return_value = tuple(
            watching.DiskWatch(str(number), device, 'node', state, 1 << 30,
                               32768, reason, recorder, dirty=number)
            for number, (device, state, reason, recorder) in enumerate((
                ('virtio-vda', 'used', None, None),
                ('virtio-vdb', 'dropped', 'resized', None),
                # of a replica on another host
                ('virtio-vda', 'dropped', 'layers', watching.REPLICA),
                ('virtio-vdz', 'used', None, None))))
        self.assertEqual({'vda': (0, ''), 'vdb': (None, 'resized')},
                         self.filler.used())

    def test_used_by_a_job_that_has_not_begun(self):
        """Then all of it is dirty, for a moment."""
        self.filler.targets()
        self.guest.disk_watches.return_value = (watching.DiskWatch(
            '0', 'virtio-vda', 'node', 'used', 1 << 30, 32768,
            'the mirror job has not begun to copy', dirty=1 << 30),)
        self.assertEqual({}, self.filler.used())
