# SPDX-License-Identifier: Apache-2.0
"""The guest stops while a mirror of a disk with an IOThread ends."""

import os
import signal
import threading
import time

from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.migration import scripted

_ATTEMPTS = 4
#: Until the job is in its last flush, and the guest's stop waits for it.
_PAUSE_S = 0.3


class MirrorEndTest(case.SeedCase):

    def stop_in_last_flush(self, one):
        """Stop the guest while the target does not answer."""
        mark = one.begin_mirror(raw=True)
        one.ready(mark)
        one.guest.fill(scripted.FIRST, 7)
        one.guest.write(scripted.FIRST, self.sectors[3])
        self.eventually(
            lambda: all(job['offset'] == job['len'] for job in
                        one.source.qmp('query-block-jobs')), 'the copy')
        stop = threading.Thread(target=one.source.pause)
        os.kill(one.destination.pid, signal.SIGSTOP)
        try:
            one.source.qmp('block-job-cancel', device='mirror')
            time.sleep(_PAUSE_S)
            stop.start()
            time.sleep(_PAUSE_S)
        finally:
            os.kill(one.destination.pid, signal.SIGCONT)
        stop.join()
        one.source.events.wait('BLOCK_JOB_COMPLETED', mark, 60)
        one.source.qmp('blockdev-del', **{'node-name': 'mirror-target'})

    def test_stop(self):
        """Without 0013-mirror-iothread.patch QEMU aborts now and then.

        On a busy machine it is every other attempt.
        """
        one = self.booted(iothread=True)
        for _ in range(_ATTEMPTS - 1):
            self.stop_in_last_flush(one)
            one.source.cont()
            one.guest.read(scripted.FIRST, self.sectors[5])
        self.stop_in_last_flush(one)
        self.assert_same(one)
