# SPDX-License-Identifier: Apache-2.0
"""Storage that fails, hangs or crawls, at the destination."""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import spec

PAGES = case.PAGES
GROUP = 'crawl'


class StorageFaultsTest(case.MigrationCase):

    def behind(self, driver, **filter):
        """The shared disk, seen through a filter."""
        path = self.directory / 'disk0.raw'
        child = 'image' if driver == 'blkdebug' else 'file'
        return [spec.Disk(blockdev=(
            {'driver': 'file', 'node-name': 'disk0-file',
             'filename': str(path), 'cache': {'direct': True}},
            {'driver': driver, 'node-name': 'disk0-filter',
             child: 'disk0-file', **filter},
            {'driver': 'raw', 'node-name': 'disk0-format',
             'file': 'disk0-filter'}))]

    def failing(self, first=0, count=32):
        """Errors for the sectors of some pages."""
        return self.behind('blkdebug', **{'inject-error': [
            {'event': 'none', 'iotype': 'read', 'errno': 5,
             'sector': scripted.DATA + 8 * (first + number)}
            for number in range(count)]})

    def crawling(self):
        """One read in some seconds, after the first.

        The pages are too far apart to be read together.
        """
        return {'step': 256,
                'destination_disks': self.behind(
                    'throttle', **{'throttle-group': GROUP}),
                'destination_args': (
                    '-object', 'throttle-group,id=%s,x-bps-read=4096,'
                    'x-bps-read-max=4096' % GROUP)}

    def test_all_reads_fail(self):
        one = self.begun(destination_disks=self.failing())
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.nack_io)

    def test_one_bad_sector(self):
        """It does not condemn its neighbours."""
        one = self.begun(destination_disks=self.failing(5, 1))
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(1, outcome.source.nack_io)
        self.assertEqual(len(PAGES) - 1, outcome.source.storage_pages)

    def test_fails_during_the_migration(self):
        one = self.begun()
        one.fetched(len(PAGES))
        one.destination.qmp(
            'blockdev-add', driver='blkdebug', image='disk0-file',
            **{'node-name': 'fault', 'inject-error': [
                {'event': 'none', 'iotype': 'read', 'errno': 28}]})
        one.destination.qmp('blockdev-reopen', options=[
            {'driver': 'raw', 'node-name': 'disk0-format', 'file': 'fault',
             'cache': {'direct': True, 'no-flush': False}}])
        one.read_pages(case.ALL)
        one.rounds(3)
        self.assert_right(one.finish())

    def test_crawls(self):
        one = self.begun(**self.crawling())
        one.recorded(len(PAGES))
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertGreater(outcome.source.final_pages, 0)

    def test_crawls_and_is_overtaken(self):
        """Resending sends what storage does not deliver."""
        one = self.begun(migration={'resend': True}, **self.crawling())
        one.until(lambda: one.figures().outstanding == 0, 'resending', 60)
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertGreater(outcome.source.resent_pages, 0)

    def test_hangs_and_is_cancelled(self):
        one = self.begun(**self.crawling())
        one.recorded(len(PAGES))
        self.assertEqual('cancelled', one.migration.cancel().status)
        one.check_home()

    def test_hangs_in_the_read_and_is_cancelled(self):
        one = self.begun(inject='fetch-delay-us=100000000')
        one.recorded(len(PAGES))
        self.assertEqual('cancelled', one.migration.cancel().status)
        one.check_home()

    def test_destination_ends_while_reads_hang(self):
        """It need not wait for its storage to go away."""
        one = self.begun(inject='fetch-delay-us=2000000')
        one.recorded(len(PAGES))
        one.source.qmp('migrate_cancel')
        one.test.eventually(
            lambda: one.migration.progress().status == 'cancelled', 'cancel')
        self.assertTrue(one.destination.wait_exit(30))
        one.check_home()

    def test_storage_recovers_after_the_guest_runs(self):
        """Old reads end while the guest already uses the disk."""
        one = self.begun(inject='fetch-delay-us=1500000')
        one.recorded(len(PAGES))
        self.assert_right(one.finish())
        arrived = one.move()
        for number, page in enumerate(PAGES):
            arrived.fill(page, number + 1)
            arrived.write(page, scripted.DATA + number * 8)
        self.eventually(
            lambda: not one.source.dedup_statistics().incoming.backlog,
            'the reads')
        for number, page in enumerate(PAGES):
            arrived.read(page, scripted.DATA + number * 8)
        one.source.pause()
        image = one.source.save_memory(self.directory)
        self.assertEqual([], one.model.wrong_pages(image))
