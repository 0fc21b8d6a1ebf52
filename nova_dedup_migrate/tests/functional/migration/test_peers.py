# SPDX-License-Identifier: Apache-2.0
"""Ordinary migrations: with other peers, and where records cannot go."""

import pathlib
import subprocess

from nova_dedup_migrate.tests.functional.migration import case
from testkit import memory
from testkit import options
from testkit import qemus

PAGES = case.PAGES


class PeersTest(case.MigrationCase):

    def ordinary(self, reason, migration=None, **given):
        """It is right, without a record, and says why."""
        one = self.begun(migration=migration, **given)
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.record_pages)
        self.assertEqual('done', outcome.source.state)
        self.assertIn(reason, outcome.source.reason)
        return one

    def check_stock_destination(self, **migration):
        self.ordinary('does not know the protocol', migration,
                      destination_binary=qemus.require(self, 'stock'))

    def test_stock_destination(self):
        self.check_stock_destination()

    def test_stock_destination_multifd(self):
        self.check_stock_destination(multifd_channels=2)

    def test_stock_destination_xbzrle(self):
        self.check_stock_destination(xbzrle=True)

    def check_stock_source(self, **migration):
        one = self.rig(binary=qemus.require(self, 'stock'),
                       destination_binary=self.binary)
        one.boot(track=False)
        one.read_pages(PAGES)
        one.migrate(arm=False, **migration)
        one.rounds()
        self.assert_right(one.finish())
        self.assertEqual(0, one.arrived().record_pages)

    def test_stock_source(self):
        self.check_stock_source()

    def test_stock_source_multifd(self):
        self.check_stock_source(multifd_channels=2)

    def test_there_and_back_over_a_stock(self):
        """Patched, stock, patched; hints do not outlive it."""
        one = self.ordinary('does not know', destination_binary=qemus
                            .require(self, 'stock'))
        one.move()
        one.migrate(arm=False)
        one.rounds()
        self.assert_right(one.finish())

    def test_not_armed(self):
        one = self.rig()
        one.boot()
        one.read_pages(PAGES)
        one.migrate(arm=False)
        one.rounds()
        self.assert_right(one.finish())
        self.assertIsNone(one.figures())

    def test_no_hello(self):
        self.ordinary('does not know the protocol', inject='no-hello')

    def test_no_return_path(self):
        self.ordinary('no return path', {'return_path': False})

    def test_armed_without_hints(self):
        one = self.rig()
        one.boot(track=False)
        one.read_pages(PAGES)
        one.migrate()
        one.active()
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.record_pages)

    def to_file(self, reason, **given):
        """An armed migration into a file, and what comes out of it."""
        one = self.rig()
        one.boot()
        one.read_pages(PAGES)
        path = self.directory / 'state'
        one.source.arm_dedup()
        wanted = options.MigrationOptions(return_path=False, **given)
        for guest in one.source, one.destination:
            if guest is one.destination:
                guest.start_incoming()
                guest.qmp('stop')
            guest.qmp('migrate-set-capabilities',
                      capabilities=wanted.qmp_capabilities())
            guest.qmp('migrate-set-parameters', **wanted.qmp_parameters())
        one.source.pause()
        one.source.qmp('migrate', uri='file:%s' % path)
        self.eventually(lambda: one.source.qmp('query-migrate')['status']
                        == 'completed', 'the file')
        self.assertIn(reason, one.figures().reason)
        one.destination.qmp('migrate-incoming', uri='file:%s' % path)
        self.eventually(lambda: one.destination.qmp('query-migrate').get(
            'status') == 'completed', 'the guest')
        here = one.source.save_memory(self.directory / 'a')
        there = one.destination.save_memory(self.directory / 'b')
        self.assertTrue(memory.compare(here, there).identical)
        self.assertEqual([], one.model.wrong_pages(there))

    def test_file(self):
        self.to_file('no return path')

    def test_mapped_ram(self):
        self.to_file('mapped-ram', capabilities={'mapped-ram': True})

    def test_snapshot_is_no_migration(self):
        """savevm leaves what was armed alone."""
        path = self.directory / 'state.qcow2'
        img = pathlib.Path(self.binary).with_name('qemu-img')
        subprocess.run([img, 'create', '-q', '-f', 'qcow2', path, '64M'],
                       check=True)
        extra = ('-blockdev', '{"driver":"qcow2","node-name":"state","file":'
                 '{"driver":"file","filename":"%s"}}' % path)
        one = self.rig()
        one.source.spec = one.spec = type(one.spec)(**{
            **vars(one.spec), 'extra_args': extra})
        one.boot()
        one.read_pages(PAGES)
        one.source.arm_dedup()
        one.source.qmp('snapshot-save', tag='one', vmstate='state',
                       devices=['state'], **{'job-id': 'save'})
        self.eventually(lambda: any(
            job['status'] == 'concluded'
            for job in one.source.qmp('query-jobs')), 'the snapshot')
        job, = one.source.qmp('query-jobs')
        one.source.qmp('job-dismiss', id='save')
        self.assertNotIn('error', job)
        one.check_home()
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.storage_pages)


class TlsTest(case.MigrationCase):

    def credentials(self):
        for side in 'source', 'destination':
            directory = self.directory / side
            directory.mkdir()
            (directory / 'keys.psk').write_text('qemu:' + '5a' * 16 + '\n')
        return options.TlsCredentials(
            self.directory / 'source', self.directory / 'destination', 'psk')

    def scenario(self, **migration):
        one = self.begun(migration={'tls': self.credentials(), **migration})
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        for turn in range(4):
            for page in PAGES:
                one.guest.poke(page, 100 + turn)
                one.guest.write(page, 64 + (page - PAGES[0]) * 8)
            one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertGreaterEqual(outcome.source.storage_pages, len(PAGES))

    def test_plain(self):
        self.scenario()

    def test_multifd(self):
        self.scenario(multifd_channels=2)
