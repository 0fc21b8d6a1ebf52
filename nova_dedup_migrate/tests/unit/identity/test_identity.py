# SPDX-License-Identifier: Apache-2.0
"""Challenges and answers, both halves together.

The two hosts are this one: what one of them would not see is taken away.
"""

import os
import shutil
import threading
from unittest import mock

from nova_dedup_migrate import deadline
from nova_dedup_migrate.identity import answer
from nova_dedup_migrate.identity import beside
from nova_dedup_migrate.identity import blockids
from nova_dedup_migrate.identity import challenge
from nova_dedup_migrate.identity import filesystem
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.images import access
from nova_dedup_migrate.images import hanging
from nova_dedup_migrate.images import rbd
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tests import base

SECRET = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'


class IdentityTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.root = self.temporary_dir()
        self.here = self.root / 'here'
        self.there = self.root / 'there'
        self.here.mkdir()
        self.there.mkdir()
        self.disk = self.here / 'disk'
        self.disk.write_bytes(os.urandom(200 * 4096))
        self.site = nodes.Site(roots=(str(self.root),))

    def patch(self, where, name, **kwargs):
        patcher = mock.patch.object(where, name, autospec=True, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def ask(self, *chain, change=None, site=None):
        """Return the answer about a disk of Nodes.

        :param change: called with the claims on their way
        """
        with challenge.challenge([nodes.Disk('vda', chain)], site) as made:
            if change is not None:
                change(*made.disks[0].chain)
            return answer.answer(made.disks[0], made.sample_key, self.site)

    def file(self, destination=None, path=None):
        return nodes.Node('file', str(path or self.disk),
                          destination and str(destination))


class FileTest(IdentityTest):
    def test_same(self):
        found = self.ask(self.file())
        self.assertEqual('shared', found.copy)
        self.assertEqual("the source's lock is on it", found.reason)
        self.assertEqual(200 * 4096, found.size)
        self.assertEqual(['disk'], os.listdir(self.here))

    def test_copy_of_the_same_content(self):
        shutil.copy(self.disk, self.there)
        found = self.ask(self.file(self.there / 'disk'))
        self.assertEqual('own', found.copy)
        self.assertIn('another file', found.reason)

    def test_copy_in_the_same_directory(self):
        shutil.copy(self.disk, self.here / 'disk2')
        found = self.ask(self.file(self.here / 'disk2'))
        self.assertEqual('own', found.copy)

    def test_hard_link(self):
        os.link(self.disk, self.there / 'disk2')
        self.assertEqual('shared',
                         self.ask(self.file(self.there / 'disk2')).copy)

    def test_symbolic_link(self):
        (self.there / 'disk').symlink_to(self.disk)
        found = self.ask(self.file(self.there / 'disk'))
        self.assertEqual('none', found.copy)
        self.assertIn('symbolic link', found.reason)

    def test_not_there(self):
        found = self.ask(self.file(self.there / 'disk'))
        self.assertEqual(('none', None), (found.copy, found.size))
        self.assertIn('has no', found.reason)

    def test_not_here(self):
        found = self.ask(self.file(self.disk, path=self.here / 'none'))
        self.assertEqual('own', found.copy)
        self.assertIn('the source: ', found.reason)

    def test_replaced_meanwhile(self):
        def replace(claim):
            shutil.copy(self.disk, self.here / 'new')
            os.rename(self.here / 'new', self.disk)

        found = self.ask(self.file(), change=replace)
        self.assertEqual('own', found.copy)

    def without_lock(self, claim):
        claim.lock_offset += 2

    def test_locks_stay_on_their_host(self):
        found = self.ask(self.file(), change=self.without_lock)
        self.assertEqual('shared', found.copy)
        self.assertIn('challenge', found.reason)

    def test_file_system_without_locks(self):
        self.patch(access, 'hold_lock', side_effect=OSError(95, 'no locks'))
        self.patch(access, 'is_locked', side_effect=OSError(95, 'no locks'))
        found = self.ask(self.file())
        self.assertEqual('shared', found.copy)
        self.assertIn('challenge', found.reason)

    def test_another_file_beside_the_challenge(self):
        """One directory is shared, and the image in it is not."""
        def other(claim):
            self.without_lock(claim)
            claim.inode += 1

        found = self.ask(self.file(), change=other)
        self.assertEqual('own', found.copy)
        self.assertIn('another file', found.reason)

    def test_same_inode_on_another_file_system(self):
        def away(claim):
            self.without_lock(claim)
            claim.challenge_name = '0' * 64

        found = self.ask(self.file(), change=away)
        self.assertEqual('own', found.copy)
        self.assertIn('challenge is not beside it', found.reason)

    def read_only(self):
        self.patch(beside, 'made', side_effect=PermissionError('read-only'))

    def test_directory_is_not_ours(self):
        self.read_only()
        self.patch(filesystem, 'describe', return_value='nfs nas:/vms')
        found = self.ask(self.file(), change=self.without_lock)
        self.assertEqual('shared', found.copy)
        self.assertIn('samples on nfs nas:/vms', found.reason)

    def test_samples_on_local_disks_prove_nothing(self):
        self.read_only()
        found = self.ask(self.file(), change=self.without_lock)
        self.assertEqual('own', found.copy)
        self.assertIn('read-only', found.reason)

    def test_samples_on_another_file_system(self):
        self.read_only()
        self.patch(filesystem, 'describe',
                   side_effect=['nfs nas:/vms', 'nfs nas:/other'])
        found = self.ask(self.file(), change=self.without_lock)
        self.assertEqual('own', found.copy)
        self.assertIn('differ', found.reason)

    def test_other_samples(self):
        self.read_only()
        self.patch(filesystem, 'describe', return_value='nfs nas:/vms')

        def change(claim):
            self.without_lock(claim)
            self.disk.write_bytes(os.urandom(200 * 4096))

        self.assertEqual('own', self.ask(self.file(), change=change).copy)

    def test_nothing_is_left_behind(self):
        self.ask(self.file())
        claims = []
        with challenge.challenge([nodes.Disk('vda', (self.file(),))]) as made:
            claims = made.disks[0].chain
        self.assertEqual(['disk'], os.listdir(self.here))
        self.assertFalse(access.is_locked(str(self.disk), None,
                                          claims[0].lock_offset))


class ChainTest(IdentityTest):
    def setUp(self):
        super().setUp()
        self.base = self.here / 'base'
        self.base.write_bytes(b'base')

    def test_all_the_same(self):
        found = self.ask(self.file(), self.file(path=self.base))
        self.assertEqual('shared', found.copy)
        self.assertEqual([True, True], [each.same for each in found.chain])

    def test_another_base(self):
        shutil.copy(self.base, self.there)
        found = self.ask(self.file(), self.file(self.there / 'base',
                                                self.base))
        self.assertEqual('none', found.copy)
        self.assertIn('backing image', found.reason)
        self.assertEqual([True, False], [each.same for each in found.chain])

    def test_another_top(self):
        shutil.copy(self.disk, self.there)
        found = self.ask(self.file(self.there / 'disk'),
                         self.file(path=self.base))
        self.assertEqual('own', found.copy)
        self.assertEqual([False, True], [each.same for each in found.chain])

    def test_no_chain(self):
        self.assertEqual('none', self.ask().copy)

    def test_long_chain(self):
        found = self.ask(*[self.file()] * (objects.MAX_CHAIN + 1))
        self.assertEqual('none', found.copy)
        self.assertIn('more than 64', found.reason)


class BlockTest(IdentityTest):
    NAA = 'naa.6001405a1b2c3d4e5f60718293a4b5c6'
    WEAK = 't10.IET 00010001'

    def setUp(self):
        super().setUp()
        node = self.here / 'device'
        node.write_bytes(b'')
        self.node = nodes.Node('block', str(node))
        # There need be no block device on the machine of the test.
        self.patch(challenge.stat, 'S_ISBLK', return_value=True)
        opened = self.patch(answer.paths, 'open_device')
        opened.return_value.__enter__.side_effect = lambda: os.open(
            node, os.O_PATH)
        self.names = self.patch(blockids, 'identifiers')
        self.size = self.patch(blockids, 'size', return_value=1 << 30)
        self.sample = self.patch(access, 'sample', return_value='1' * 64)

    def test_unique_name(self):
        self.names.return_value = [self.NAA]
        found = self.ask(self.node)
        self.assertEqual(('shared', 1 << 30), (found.copy, found.size))
        self.sample.assert_not_called()

    def test_other_name(self):
        self.names.side_effect = [[self.NAA], ['naa.6' + '0' * 31]]
        found = self.ask(self.node)
        self.assertEqual('own', found.copy)
        self.assertIn('another device', found.reason)

    def test_other_size(self):
        self.names.return_value = [self.NAA]
        self.size.side_effect = [1 << 30, 1 << 29]
        self.assertEqual('own', self.ask(self.node).copy)

    def test_no_name(self):
        self.names.return_value = []
        self.assertEqual('own', self.ask(self.node).copy)

    def test_weak_name(self):
        self.names.return_value = [self.WEAK]
        self.assertEqual('shared', self.ask(self.node).copy)
        self.assertEqual(2, self.sample.call_count)

    def test_weak_name_and_other_content(self):
        self.names.return_value = [self.WEAK]
        self.sample.side_effect = ['1' * 64, '2' * 64]
        found = self.ask(self.node)
        self.assertEqual('own', found.copy)
        self.assertIn('need not be unique', found.reason)

    def test_weak_name_and_no_content(self):
        self.names.return_value = [self.WEAK]
        self.sample.return_value = None
        self.assertEqual('own', self.ask(self.node).copy)


class RbdTest(IdentityTest):
    def setUp(self):
        super().setUp()
        self.identify = self.patch(rbd, 'identify',
                                   return_value=('fsid/3/abc', 5))
        self.node = nodes.Node('rbd', 'vms/disk', user='cinder',
                               secret=SECRET)

    def test_same(self):
        found = self.ask(self.node)
        self.assertEqual('shared', found.copy)
        self.identify.assert_called_with('vms/disk', 'cinder', None, '')

    def test_other_cluster(self):
        self.identify.side_effect = [('fsid/3/abc', 5), ('fsid2/3/abc', 5)]
        found = self.ask(self.node)
        self.assertEqual('none', found.copy)

    def test_unavailable(self):
        self.identify.side_effect = rbd.RbdUnavailable(
            image='vms/disk', reason='no python3-rbd')
        found = self.ask(self.node)
        self.assertEqual('none', found.copy)
        self.assertIn('no python3-rbd', found.reason)

    def test_key(self):
        site = nodes.Site(ceph_key=lambda secret: b'\x00\xff')
        self.ask(self.node, site=site)
        self.identify.assert_any_call('vms/disk', 'cinder', 'AP8=', '')

    def test_no_key(self):
        def fail(secret):
            raise RuntimeError('no such secret')

        found = self.ask(self.node, site=nodes.Site(ceph_key=fail))
        self.assertEqual('shared' if found.chain[0].same else 'none',
                         found.copy)
        self.assertFalse(found.chain[0].same)


class SourceTest(IdentityTest):
    """What the source must survive."""

    def test_unknown_kind(self):
        found = self.ask(nodes.Node('other', 'network nbd'))
        self.assertEqual('none', found.copy)
        self.assertIn('network nbd', found.reason)

    def test_paths_the_bus_does_not_take(self):
        for path in ('/x\x00y', '/x\ny', '/' + 'x' * 5000, ''):
            self.assertEqual('none', self.ask(nodes.Node('file', path)).copy)

    def test_wrong_type(self):
        self.assertEqual('none', self.ask(
            nodes.Node('file', str(self.here))).copy)
        self.assertEqual('none', self.ask(
            nodes.Node('block', str(self.disk))).copy)

    def test_storage_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        hold = self.patch(access, 'hold_lock')
        released = mock.Mock(spec_set=[], name='release')

        def wait(*args):
            done.wait(30)
            return released

        hold.side_effect = wait
        with challenge.challenge([nodes.Disk('vda', (self.file(),))],
                                 timeout=0.05) as made:
            claim = made.disks[0].chain[0]
            self.assertEqual('file', claim.kind)
            self.assertIsNone(claim.lock_offset)
            self.assertIn('did not answer', claim.note)
        done.set()
        # What it makes when it is no longer wanted is withdrawn.
        self.eventually(lambda: released.called, 'the lock is released')
        self.eventually(lambda: os.listdir(self.here) == ['disk'],
                        'the challenge is removed')

    def test_too_much_hangs(self):
        self.patch(hanging.STORAGE, 'run',
                   side_effect=deadline.Late(what='storage',
                                             seconds=5.0))
        with challenge.challenge([nodes.Disk('vda', (self.file(),))]) as made:
            self.assertIn('storage did not answer',
                          made.disks[0].chain[0].note)


class HostileTest(IdentityTest):
    """What the destination must survive."""

    def look(self, **claim):
        claim = objects.DedupNodeClaim(**claim)
        return answer.answer(objects.DedupDiskQuery(
            target='vda', chain=[claim]), None, self.site)

    def test_claims_without_their_proof(self):
        for claim in ({}, {'challenge_name': '0' * 64},
                      {'challenge_content': '0' * 64},
                      {'lock_offset': 2 ** 63 - 2}, {'lock_offset': 0},
                      {'samples': '0' * 64, 'filesystem': 'nfs x'}):
            found = self.look(kind='file', path=str(self.disk),
                              inode=self.disk.stat().st_ino, **claim)
            self.assertEqual('own', found.copy, claim)

    def test_rbd_paths(self):
        for path in ('', '/', 'x', 'a/b/c/d', '//'):
            self.assertEqual('none', self.look(kind='rbd', path=path).copy)

    def test_devices(self):
        for path in ('/dev/null', '/dev/mem', str(self.disk), '/dev/../x',
                     ''):
            self.assertEqual('none', self.look(kind='block',
                                               path=path).copy)
