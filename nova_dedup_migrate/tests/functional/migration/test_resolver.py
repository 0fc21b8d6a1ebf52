# SPDX-License-Identifier: Apache-2.0
"""The source reads an image's metadata, slowly, while it hands over.

A cluster is 512 bytes, so the image has a table for each 32 KiB; of those
QEMU keeps few in memory, and a throttle makes each read of one take a
while.  Nearly always one is under way.
"""

import pathlib
import subprocess

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.migration import case
from testkit import qemus
from testkit import spec

GROUP = 'slow'
#: Pages so far apart that each needs a table of its own.
STEP = 88
PAGES = case.ALL


class SlowMetadataTest(case.MigrationCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'disk.qcow2'

    def slow(self, source_inject=''):
        one = self.rig(source_inject=source_inject)
        raw = one.spec.disks[0].path
        img = qemus.tool(pathlib.Path(self.binary), 'qemu-img')
        subprocess.run([img, 'convert', '-f', 'raw', '-O', 'qcow2', '-o',
                        'cluster_size=512', raw, self.path], check=True)
        self.img = img
        disk = spec.Disk(blockdev=(
            {'driver': 'file', 'node-name': 'disk0-file',
             'filename': str(self.path), 'cache': {'direct': True}},
            {'driver': 'throttle', 'node-name': 'disk0-slow',
             'throttle-group': GROUP, 'file': 'disk0-file'},
            {'driver': 'qcow2', 'node-name': 'disk0-format',
             'l2-cache-size': 1024, 'file': 'disk0-slow'}))
        one.source.spec = one.spec = type(one.spec)(**{
            **vars(one.spec), 'disks': (disk,), 'extra_args': (
                '-object', 'throttle-group,id=' + GROUP)})
        one.new_destination(disks=(spec.Disk(path=self.path,
                                             format='qcow2'),))
        one.boot()
        one.read_pages(PAGES, step=STEP)
        one.source.qmp('qom-set', path='/objects/' + GROUP,
                       property='limits', value={'iops-read': 10})
        return one

    def fails_late(self, source_inject=''):
        """The destination goes away when the disks are inactive."""
        one = self.slow(source_inject)
        one.migrate(pause_before_switchover=True)
        one.let_go()
        one.migration.wait_status(('pre-switchover',), 60)
        one.destination.destroy()
        one.migration.proceed()
        return one

    def test_destination_fails_at_the_switchover(self):
        one = self.fails_late()
        self.eventually(lambda: one.migration.progress().status == 'failed',
                        'the failure')
        self.eventually(lambda: one.source.run_state() == 'running',
                        'the guest goes on')
        one.check_home()
        one.source.qmp('qom-set', path='/objects/' + GROUP,
                       property='limits', value={'iops-read': 0})
        one.guest.read(PAGES[0], 64 + STEP)
        one.source.destroy()
        subprocess.run([self.img, 'check', '-q', self.path], check=True)

    def test_destination_fails_at_the_switchover_broken(self):
        """The guest is lost: qcow2 forgets its tables under the reader."""
        one = self.fails_late('no-quiesce')
        error = self.assertRaises(
            errors.MigrationFailed, self.eventually,
            lambda: one.migration.progress().status == 'failed', 'the end')
        self.assertIn('source lost', str(error))

    def test_completes(self):
        """The bitmap is synchronised twice with nothing sent in between.

        Without 0011-tcg-dirty-log.patch pages of the window that changes
        all the time differ, in most runs.
        """
        one = self.slow()
        one.migrate()
        one.active()
        self.assert_right(one.finish())
