# SPDX-License-Identifier: Apache-2.0
"""RBD images, with Ceph's modules replaced: they need not be there."""

import types
from unittest import mock

from nova_dedup_migrate.images import rbd
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class Error(Exception):
    """Of Ceph."""


class Image:
    """What of librbd's Image is used; 4 MiB, the second half is empty."""

    opened = None

    def __init__(self, ioctx, name, read_only=False):
        if name == 'none':
            raise Error('[errno 2] RBD image not found')
        if not read_only:
            raise AssertionError('images are opened read-only')
        Image.opened = (ioctx.pool, ioctx.namespace, name)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def id(self):
        return 'abc'

    def size(self):
        return 4 * MIB

    def diff_iterate(self, offset, length, from_snapshot, callback,
                     include_parent=True, whole_object=False):
        callback(0, 2 * MIB, True)
        callback(2 * MIB, 2 * MIB, False)

    def read(self, offset, length):
        if offset >= 2 * MIB:
            raise AssertionError('a hole is read')
        return bytes(length)


class Ioctx:
    def __init__(self, pool):
        self.pool = pool
        self.namespace = None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def set_namespace(self, namespace):
        self.namespace = namespace


class Rados:
    made = None

    def __init__(self, rados_id=None, conffile=None, conf=None):
        Rados.made = (rados_id, conffile, conf)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def get_fsid(self):
        return 'fsid'

    def pool_lookup(self, name):
        return 3

    def open_ioctx(self, pool):
        if pool == 'none':
            raise Error('no such pool')
        return Ioctx(pool)


class RbdTest(base.TestCase):
    def setUp(self):
        super().setUp()
        modules = {'rados': types.SimpleNamespace(Rados=Rados, Error=Error),
                   'rbd': types.SimpleNamespace(Image=Image, Error=Error)}
        patcher = mock.patch.object(rbd.importlib, 'import_module',
                                    autospec=True,
                                    side_effect=modules.__getitem__)
        self.importer = patcher.start()
        self.addCleanup(patcher.stop)

    def test_identity(self):
        self.assertEqual(('fsid/3/abc', 4 * MIB),
                         rbd.identify('vms/disk', None, None, ''))
        self.assertEqual(('vms', '', 'disk'), Image.opened)

    def test_namespace(self):
        name, _ = rbd.identify('vms/ns/disk', None, None, '')
        self.assertEqual('fsid/3/ns/abc', name)
        self.assertEqual(('vms', 'ns', 'disk'), Image.opened)

    def test_login(self):
        rbd.identify('vms/disk', 'cinder', 'key==', '/etc/ceph/x.conf')
        user, conffile, options = Rados.made
        self.assertEqual(('cinder', '/etc/ceph/x.conf', 'key=='),
                         (user, conffile, options['key']))
        # A cluster that is away is waited for only so long.
        self.assertIn('client_mount_timeout', options)
        rbd.identify('vms/disk', None, None, '')
        self.assertNotIn('key', Rados.made[2])

    def unavailable(self, path, match):
        error = self.assertRaises(rbd.RbdUnavailable, rbd.identify, path,
                                  None, None, '')
        self.assertRegex(str(error), match)

    def test_errors(self):
        self.unavailable('vms/none', 'not found')
        self.unavailable('none/disk', 'no such pool')

    def test_paths(self):
        for path in ('', 'disk', '/', '/disk', 'vms/', 'a/b/c/d'):
            self.unavailable(path, 'not pool/image')

    def test_modules_are_not_there(self):
        self.importer.side_effect = ImportError('No module named rados')
        self.unavailable('vms/disk', 'python3-rbd')

    def test_rate(self):
        for rate in rbd.read_rates('vms/disk', None, None, '', 8 * MIB,
                                   60.0):
            self.assertGreater(rate, 0)
        self.assertIsNone(rbd.read_rates('vms/disk', None, None, '', 0,
                                         60.0)[0])
