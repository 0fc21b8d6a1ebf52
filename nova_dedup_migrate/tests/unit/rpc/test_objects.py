# SPDX-License-Identifier: Apache-2.0
"""The objects' versions, limits and what arrives incomplete."""

from oslo_versionedobjects import base
from oslo_versionedobjects import exception
from oslo_versionedobjects import fixture
import testtools

from nova_dedup_migrate.backups import objects as backup_objects
from nova_dedup_migrate.rpc import disk_objects  # noqa: F401 registers
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects  # noqa: F401 registers
from nova_dedup_migrate.rpc import survey_objects  # noqa: F401 registers
from nova_dedup_migrate.rpc import watch_objects  # noqa: F401 registers
from nova_dedup_migrate.tests import base as tests_base

UUID = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'

# A change of a fingerprint needs a new version of the object, and of the
# RPC API for agents that know the old one only.
FINGERPRINTS = {
    'DedupBackup': '1.0-17d7ef672a4bb5b0bde5e5afa404b2ad',
    'DedupBackupCloseRequest': '1.0-018c7ca6b77dec2cbab1b64739effbeb',
    'DedupBackupFindReply': '1.0-91ab074819ece946bbe428a0950ed336',
    'DedupBackupFindRequest': '1.0-15a70335596a3b1de95962ca3f9393e8',
    'DedupBackupLoad': '1.0-ad8ab994b44e74387685090ab1138a91',
    'DedupBackupOpenRequest': '1.0-45cb6495b7213ce1479d40e724feb0ff',
    'DedupBackupTicket': '1.0-39f44c9d5ec28b63c2496c558c868949',
    'DedupChannelOffer': '1.0-eab551e97736d11a6162178108d9afbf',
    'DedupChannelRequest': '1.0-9d5bd399ede5101419f86d95d58d1354',
    'DedupDiskAnswer': '1.0-015a9ea1bfc3b1e81cf1e87fcb0d27a8',
    'DedupDiskHints': '1.0-b04aa9f1680a95b23eeb49aba6a57000',
    'DedupDiskQuery': '1.0-c58a308d95653bf0e8a873576e6d3a0d',
    'DedupDiskSample': '1.0-eff5ef6227c249f145f19b29b4ea76fe',
    'DedupFactsReply': '1.0-6b6e9371031e975c69bf47a407e8b19d',
    'DedupFactsRequest': '1.0-633fbb6cfefa515ec873f3d9c690f000',
    'DedupFillRequest': '1.0-aca8d50b119fbf3729b960a72f2f1471',
    'DedupFillingReply': '1.0-f8a53aa7b2116fb92ffd425f8af5d2a3',
    'DedupFillingRequest': '1.0-4abf2e1fe7f1baa49a2362f13045f1f7',
    'DedupForgetRequest': '1.0-2be4a50e5906352b5a1105ebfb400d88',
    'DedupGuestReply': '1.0-da11eef3e2fcacb8429a546a77695259',
    'DedupGuestRequest': '1.0-fbb744a0906138ca7dbac84a633685b7',
    'DedupGuestSample': '1.0-2062aba1ab3bc64c342fbba26093766e',
    'DedupHostReport': '1.0-26e7e041aa5ecfc20ef636b02d25042f',
    'DedupHaveRequest': '1.0-bc6b1fe65dbadbbb4f4a3dd3341c3d7c',
    'DedupImageFile': '1.0-2c7ddc4778e10435f7e53c3ad12e0080',
    'DedupImageStore': '1.0-9ed38ca9b8c8ecc19030060aa0c5cc0b',
    'DedupIncomingReply': '1.0-126cab5c5f936b62eea71b16105126cd',
    'DedupIncomingRequest': '1.0-c2635a5bf26dfa5983db582eedd2f418',
    'DedupLinkOffer': '1.0-789bcc48452fd144601fac01f37032d3',
    'DedupLinkRequest': '1.0-6ed2e75dd6099cb77b16b703cd64782f',
    'DedupMigrationOptions': '1.0-b8c3206f1a5434c8de1a5c262325c51e',
    'DedupNodeAnswer': '1.0-a84958e346328e2fcbdd8d196bdc035a',
    'DedupNodeClaim': '1.0-77763d0fb7fd637dab92add1affc6ba5',
    'DedupPrepareRequest': '1.0-91eb65164696524c867b225fba23e64a',
    'DedupPublicImages': '1.0-3da122d7a9744ec8a2b7583a77d9cf87',
    'DedupReplica': '1.0-5c37e30bf7ae80a44c14f7d8bafaa8e1',
    'DedupReplicas': '1.0-23e6984f0b682bcea10c02a1d8ef82b2',
    'DedupReport': '1.0-2cf164a8286eb7bb025b0e70ae4724ac',
    'DedupSourceBytes': '1.0-df8601bc220f13a4454097326f046c3a',
    'DedupStoredImage': '1.0-8c1dd2f5e079dee777eed8d0f3302f76',
    'DedupSurveyReply': '1.0-7d4bed23ca8f9786dc7e754ee25cfe98',
    'DedupSurveyRequest': '1.0-ce8a640d9ad5000ef168bfaaf8861901',
    'DedupTakeRequest': '1.0-36e0c1510b7866962a4f35076b087809',
    'DedupTryImagesReply': '1.0-fb381f917506497f0f92b4e7b14a4128',
    'DedupTryImagesRequest': '1.0-ea52a09e6f23db41e6192289f71a4c83',
    'DedupWatchReply': '1.0-0c6b50471b2018458375b5fac26e6bf4',
    'DedupWatchRequest': '1.0-a8e88ee968aaa428436ec97997f1cf1f',
    'DedupWrittenIn': '1.0-9cda8f111261c21d2bd7b52774cf1df5',
}


class FingerprintsTest(tests_base.TestCase):
    def test_fields_of_each_version(self):
        checker = fixture.ObjectVersionChecker(objects.all_classes())
        expected, actual = checker.test_hashes(FINGERPRINTS)
        self.assertEqual(expected, actual)

    def test_each_module_is_here(self):
        for one in (objects.DedupDiskQuery, backup_objects.DedupBackup):
            self.assertIn(one.obj_name(), FINGERPRINTS)

    def test_names_do_not_meet_others(self):
        for name in objects.all_classes():
            self.assertTrue(name.startswith('Dedup'), name)


class LimitsTest(tests_base.TestCase):
    def _refused(self, cls, match, **kwargs):
        with testtools.ExpectedException(ValueError, match):
            cls(**kwargs)

    def test_text(self):
        for path, match in (
                ('x' * (objects.MAX_PATH + 1), '.*at most 4096 characters'),
                ('a\nb', '.*printable'), ('a\x00', '.*printable'),
                ('\udcff', '.*printable'), (b'a', '.*a text'),
                (7, '.*a text')):
            self._refused(objects.DedupNodeClaim, 'path is .*' + match,
                          kind='file', path=path)

    def test_choice(self):
        self._refused(objects.DedupNodeClaim, 'kind is .*', kind='fifo',
                      path='/x')

    def test_pattern_is_of_the_whole_text(self):
        for digest in ('f' * 63, 'f' * 65, 'F' * 64, 'f' * 63 + '/'):
            self._refused(objects.DedupNodeClaim, 'challenge_name is .*',
                          kind='file', path='/x', challenge_name=digest)

    def test_count(self):
        for size in (-1, 2 ** 63, True, '1', 1.0):
            self._refused(objects.DedupNodeClaim, 'size is .*',
                          kind='file', path='/x', size=size)

    def test_number(self):
        for rate in (-1.0, float('nan'), float('inf'), 10 ** 400, '1',
                     True):
            self._refused(objects.DedupLinkRequest, 'seconds is .*',
                          source='h', seconds=rate, bytes=1)

    def test_flag(self):
        self._refused(objects.DedupNodeAnswer, 'same is .*', same=1)

    def test_lists(self):
        claim = objects.DedupNodeClaim(kind='file', path='/x')
        self._refused(objects.DedupDiskQuery, 'chain is .*', target='vda',
                      chain=[claim] * (objects.MAX_CHAIN + 1))
        self._refused(objects.DedupDiskQuery, '.*', target='vda',
                      chain=['/x'])
        self._refused(objects.DedupDiskQuery, 'chain is .*', target='vda',
                      chain='/x')

    def test_uuid(self):
        self._refused(objects.DedupIncomingRequest, 'instance_uuid is .*',
                      instance_uuid='../../x', migration_uuid=UUID)

    def test_what_has_no_default_must_be_given(self):
        self._refused(objects.DedupDiskQuery, 'DedupDiskQuery lacks chain',
                      target='vda')


class SecretTest(tests_base.TestCase):
    """The token of a user is in no log."""

    TOKEN = 'gAAAAAB-secret'

    def test_is_not_shown(self):
        store = image_objects.DedupImageStore(
            endpoint='https://glance:9292/image', token=self.TOKEN,
            images=[])
        asked = image_objects.DedupTryImagesRequest(
            store=store, size=1, sample=image_objects.DedupDiskSample(
                digests=[], offsets=[]))
        self.assertIn("token='***'", repr(store))
        for shown in repr(store), str(store), repr(asked), '%s' % [asked]:
            self.assertNotIn(self.TOKEN, shown)
        self.assertEqual(self.TOKEN, objects.DedupObject.obj_from_primitive(
            asked.obj_to_primitive()).store.token)

    def test_is_not_in_errors(self):
        for token in (self.TOKEN + ' x', self.TOKEN + '\r\nHost: y', '',
                      self.TOKEN * 9999, b'x', None):
            error = self.assertRaises(
                ValueError, image_objects.DedupImageStore,
                endpoint='http://h', token=token, images=[])
            self.assertIn('token', str(error))
            self.assertNotIn(self.TOKEN, str(error))

    def test_endpoints(self):
        for endpoint in ('file:///etc', 'http://u:p@h/', 'http://h/?a=b',
                         'http://h/x y', 'http://h/#f', 'http://',
                         'http://h/' + 'x' * 1024):
            self.assertRaises(ValueError, image_objects.DedupImageStore,
                              endpoint=endpoint, token='t', images=[])
        for endpoint in ('http://h', 'https://h:9292', 'http://[::1]:9292/',
                         'https://h.example/image/'):
            image_objects.DedupImageStore(endpoint=endpoint, token='t',
                                          images=[])

    def test_too_many_images(self):
        images = [image_objects.DedupStoredImage(image=UUID, size=1)]
        self.assertRaises(ValueError, image_objects.DedupImageStore,
                          endpoint='http://h', token='t', images=images * 9)


class ArrivalTest(tests_base.TestCase):
    """Primitives that no object of ours would have made."""

    def _primitive(self):
        return objects.DedupDiskQuery(target='vda', chain=[
            objects.DedupNodeClaim(kind='file', path='/x')]
        ).obj_to_primitive()

    def _data(self, primitive):
        return primitive['nova_dedup_migrate_object.data']

    def test_round_trip(self):
        query = objects.DedupObject.obj_from_primitive(self._primitive())
        self.assertEqual('/x', query.chain[0].path)
        self.assertIsNone(query.chain[0].lock_offset)

    def test_default_for_what_is_missing(self):
        primitive = self._primitive()
        del self._data(self._data(primitive)['chain'][0])['identifiers']
        query = objects.DedupObject.obj_from_primitive(primitive)
        self.assertEqual([], query.chain[0].identifiers)

    def test_refused_without_default(self):
        primitive = self._primitive()
        del self._data(primitive)['chain']
        with testtools.ExpectedException(ValueError, '.*lacks chain'):
            objects.DedupObject.obj_from_primitive(primitive)

    def test_long_list_is_refused_before_its_elements_are_made(self):
        primitive = self._primitive()
        self._data(primitive)['chain'] = [None] * (objects.MAX_CHAIN + 1)
        with testtools.ExpectedException(ValueError, 'chain is .*'):
            objects.DedupObject.obj_from_primitive(primitive)

    def test_wrong_type(self):
        primitive = self._primitive()
        self._data(primitive)['target'] = ['vda']
        with testtools.ExpectedException(ValueError, 'target is .*'):
            objects.DedupObject.obj_from_primitive(primitive)

    def test_foreign_object(self):
        primitive = self._primitive()
        primitive['nova_dedup_migrate_object.namespace'] = 'nova'
        self.assertRaises(exception.UnsupportedObjectError,
                          objects.DedupObject.obj_from_primitive, primitive)

    def test_every_class_is_registered_once(self):
        for classes in objects.all_classes().values():
            self.assertEqual(1, len(classes))
            self.assertTrue(issubclass(classes[0], base.VersionedObject))
