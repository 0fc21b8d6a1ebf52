# SPDX-License-Identifier: Apache-2.0
"""Memory that is shared, or made of huge pages."""

import pathlib
import subprocess

from nova_dedup_migrate.tests.functional.migration import case

PAGES = case.PAGES
_RESERVED = pathlib.Path('/proc/sys/vm/nr_hugepages')
HUNG = 'fetch-delay-us=100000000'


class SharedMemoryTest(case.MigrationCase):

    def test_shared(self):
        one = self.begun(memory_share=True)
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.storage_pages)


class HugePagesTest(case.MigrationCase):
    """2 MiB pages: post-copy moves whole ones."""

    def setUp(self):
        super().setUp()
        before = int(_RESERVED.read_text())
        wanted = before + 2 * 16
        try:
            _RESERVED.write_text(str(wanted))
        except OSError as error:
            self.skipTest('no huge pages can be reserved: %s' % error)
        self.addCleanup(_RESERVED.write_text, str(before))
        if int(_RESERVED.read_text()) < wanted:
            self.skipTest('the machine has no %d huge pages' % wanted)
        self.mount = self.directory / 'huge'
        self.mount.mkdir()
        done = subprocess.run(
            ['mount', '-t', 'hugetlbfs', '-o', 'pagesize=2M', 'none',
             self.mount], capture_output=True, text=True)
        if done.returncode:
            self.skipTest('no hugetlbfs: ' + done.stderr.strip())
        self.addCleanup(subprocess.run, ['umount', '-l', self.mount],
                        check=True)

    def scenario(self, inject='', postcopy=False, **migration):
        one = self.begun(inject=inject, memory_path=self.mount,
                         migration={'postcopy': postcopy, **migration})
        one.recorded(len(PAGES))
        if not inject:
            one.until(lambda: one.figures().outstanding == 0, 'answers')
        if postcopy:
            one.migration.start_postcopy()
            outcome = one.outcome()
        else:
            outcome = one.finish()
        self.assert_right(outcome)
        one.move()
        return outcome

    def test_precopy(self):
        outcome = self.scenario()
        self.assertEqual(len(PAGES), outcome.source.storage_pages)

    def test_precopy_multifd(self):
        self.scenario(multifd_channels=2)

    def test_postcopy_with_backlog(self):
        self.scenario(HUNG, postcopy=True)

    def test_postcopy_after_the_fetch(self):
        self.scenario(postcopy=True)

    def test_postcopy_preempt(self):
        self.scenario(HUNG, postcopy=True, postcopy_preempt=True)
