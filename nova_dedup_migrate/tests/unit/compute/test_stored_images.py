# SPDX-License-Identifier: Apache-2.0
"""Which images of Glance may serve for an instance's disk."""

import threading
from unittest import mock

from nova import context as nova_context
from nova import exception
from nova import objects
from nova.image import glance

from nova_dedup_migrate.compute import stored_images
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes

SIZE = 10 << 30
TOKEN = 'gAAAA-of-the-administrator'


def uuid(number):
    return '33333333-0000-4000-8000-%012d' % number


def image(number, **changes):
    """Return an image as nova.image.glance translates it."""
    return {'id': uuid(number), 'status': 'active', 'owner': 'p1',
            'is_public': False, 'disk_format': 'raw',
            'container_format': 'bare', 'size': 1 << 30,
            'properties': {'instance_uuid': fakes.INSTANCE}, **changes}


class StoredImagesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.base = image(0, owner='admin', is_public=True, properties={})
        self.own = []
        self.api = mock.create_autospec(glance.API, instance=True)
        self.api.get.side_effect = lambda context, ref: self.base
        self.api.get_all.side_effect = lambda context, **how: self.own
        for name, value in ('API', lambda: self.api), (
                'generate_glance_url',
                lambda context: 'https://glance.example/image/'):
            patch = mock.patch.object(glance, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.instance = objects.Instance(
            uuid=fakes.INSTANCE, project_id='p1', image_ref=uuid(0))
        self.context = nova_context.RequestContext(
            'u', 'admin', auth_token=TOKEN, is_admin=True)

    def find(self):
        return stored_images.find(self.context, self.instance, SIZE)

    def numbers(self, found):
        return [int(each.image[-12:]) for each in found.store.images]

    def left_out(self, match, **changes):
        """Check that an image does not serve."""
        self.own = [image(1, **changes), image(2)]
        found = self.find()
        self.assertEqual([2, 0], self.numbers(found))
        self.assertIn('image %s %s' % (uuid(1), match), found.reason)

    def test_image_and_snapshots(self):
        self.own = [image(2), image(1, size=SIZE)]
        found = self.find()
        self.assertEqual([2, 1, 0], self.numbers(found))
        self.assertEqual(('https://glance.example/image', TOKEN, SIZE, ''), (
            found.store.endpoint, found.store.token,
            found.store.images[1].size, found.reason))
        self.assertEqual(
            {'instance_uuid': fakes.INSTANCE, 'owner': 'p1'},
            self.api.get_all.call_args.kwargs['filters'])

    def test_private_image_of_another_project(self):
        """An administrator sees it; it does not serve all the same."""
        self.left_out('is neither public nor', owner='p2')
        self.left_out('is neither public nor', owner=None)
        self.base['is_public'] = False
        self.own = []
        found = self.find()
        self.assertIsNone(found.store)
        self.assertIn('image %s is neither' % uuid(0), found.reason)

    def test_private_image_of_the_project(self):
        self.base.update(is_public=False, owner='p1')
        self.assertEqual([0], self.numbers(self.find()))

    def test_formats(self):
        self.left_out('is qcow2 and not raw', disk_format='qcow2')
        self.left_out('is None and not raw', disk_format=None)
        self.left_out('is in a container, ova', container_format='ova')

    def test_not_there_yet(self):
        for status in 'queued', 'saving', 'deactivated', 'pending_delete':
            self.left_out('is ' + status, status=status)

    def test_sizes(self):
        self.left_out('has %d bytes' % (SIZE + 1), size=SIZE + 1)
        # of a snapshot of volumes
        self.left_out('has 0 bytes', size=0)
        self.left_out('has None bytes', size=None)

    def test_many(self):
        self.own = [image(number) for number in range(40, 0, -1)]
        found = self.find()
        self.assertEqual(image_objects.MAX_STORED,
                         len(found.store.images))
        self.assertEqual([40, 39, 38, 37, 36, 35, 34, 0],
                         self.numbers(found))

    def test_image_is_listed_as_well(self):
        """The instance was made of its own snapshot, and rebuilt."""
        self.own = [image(0), image(1)]
        self.assertEqual([1, 0], self.numbers(self.find()))

    def test_image_is_gone(self):
        self.api.get.side_effect = exception.ImageNotFound(image_id='x')
        self.own = [image(1)]
        self.assertEqual([1], self.numbers(self.find()))

    def test_no_image(self):
        self.instance.image_ref = ''
        self.assertEqual((None, ''), (self.find().store,
                                      self.find().reason))
        self.api.get.assert_not_called()

    def test_no_token(self):
        self.context.auth_token = None
        found = self.find()
        self.assertEqual((None, 'the request of the migration has no '
                          'token'), (found.store, found.reason))
        self.api.get_all.assert_not_called()

    def test_glance_fails(self):
        self.api.get_all.side_effect = exception.GlanceConnectionFailed(
            server='https://glance', reason='refused')
        found = self.find()
        self.assertIsNone(found.store)
        self.assertIn('Glance cannot be used: ', found.reason)

    def test_glance_hangs(self):
        """The migration does not wait for it."""
        ended = threading.Event()
        self.addCleanup(ended.set)
        self.api.get_all.side_effect = lambda *args, **how: ended.wait(30)
        with mock.patch.object(stored_images, 'PATIENCE', 0.1):
            found = self.find()
        self.assertIsNone(found.store)
        self.assertIn('Glance did not answer within 0.1 s', found.reason)

    def test_what_glance_returns_is_checked(self):
        for changes in {'id': '../../secret'}, {'size': 'much'}:
            self.own = [image(1, **changes)]
            found = self.find()
            self.assertIsNone(found.store)
            self.assertIn('Glance cannot be used', found.reason)
            self.assertNotIn(TOKEN, found.reason)

    def test_token_of_another_form(self):
        self.context.auth_token = 'two words'
        found = self.find()
        self.assertIsNone(found.store)
        self.assertNotIn('words', found.reason)
