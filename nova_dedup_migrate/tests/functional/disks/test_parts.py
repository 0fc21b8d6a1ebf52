# SPDX-License-Identifier: Apache-2.0
"""What comes between two parts of a large disk's bitmap.

Parts are 300 ms apart here.  QEMU handles one QMP command at a time, of
whatever monitor, so only the human monitor's commands come in between, and
what the guest does.
"""

from concurrent import futures
import json
import socket
import time

from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import qmp
from nova_dedup_migrate.tests.functional.disks import case
from testkit import qemus

_GRANULE = 4096
#: Granules of a part: of arming, of watching.
_ARMED, _WATCHED = 65536, 64 * 65536
_DEVICE = '/machine/peripheral/large/virtio-backend'


class Hmp:
    """A connection to the human monitor."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(path)
        self._prompt()

    def _prompt(self):
        text = b''
        while not text.endswith(b'(qemu) '):
            data = self._socket.recv(65536)
            if not data:
                raise EOFError('the human monitor has closed')
            text += data
        return text.decode()

    def run(self, line):
        """Run a command; return what it printed, after its echo."""
        self._socket.sendall(line.encode() + b'\n')
        return self._prompt()

    def close(self):
        self._socket.close()


class PartsTest(case.SeedCase):

    def setUp(self):
        self.faulty = qemus.require(self, 'faulty')
        super().setUp()
        self.binary = self.faulty

    def large(self, granules):
        """A Rig with a disk of so many granules, without content."""
        self.sockets = self.temporary_dir()
        monitors = []
        for name, mode in ('hmp', 'readline'), ('qmp', 'control'):
            monitors += [
                '-chardev', 'socket,id=%s2,server=on,wait=off,path=%s' % (
                    name, self.path(name)),
                '-mon', 'chardev=%s2,mode=%s' % (name, mode)]
        one = self.rig(extra_args=(
            # the human monitor names the jobs of a drive, not of a node
            '-drive', 'driver=null-co,if=none,id=null,read-zeroes=on,size=%d'
            % (granules * _GRANULE),
            '-device', 'virtio-blk-pci,id=large,drive=null', *monitors),
            env={'QEMU_DEDUP_INJECT': 'disk-turn-ms=300'})
        self.hmp = Hmp(self.path('hmp'))
        self.addCleanup(self.hmp.close)
        return one

    def path(self, name):
        return str(self.sockets / name)

    def begun(self, function, *args):
        """Run it in a thread; return its Future, after the first part."""
        pool = futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        result = pool.submit(function, *args)
        time.sleep(0.5)
        return result

    def cleared(self, one):
        watch = one.source.watch_disk('large', _GRANULE)
        one.source.clear_disk(watch.token, 0, watch.size)
        return watch

    def proven(self, watch, *rest):
        """Return the bitmap of all granules but some."""
        bits = (1 << watch.granules) - 1
        for number in rest:
            bits ^= 1 << number
        return bits.to_bytes(watch.bitmap_bytes, 'little')

    def write(self, number):
        """Write to a granule as the guest does."""
        said = self.hmp.run('qemu-io -d %s "write -q %d 512"' % (
            _DEVICE, number * _GRANULE))
        self.assertNotIn('rror', said)

    def test_writes_while_it_is_armed(self):
        """Into what is done, and into what is not."""
        one = self.large(4 * _ARMED)
        watch = self.cleared(one)
        arming = self.begun(one.source.arm_disk, watch.token,
                            self.proven(watch), *one.canary)
        for number in 7, 4 * _ARMED - 9:
            self.write(number)
        self.assertFalse(arming.done())
        # the canary's granule, besides
        self.assertEqual(3 * _GRANULE, arming.result(60).dirty)
        for number in 0, 7, 4 * _ARMED - 9:
            self.write(number)
        self.assertEqual(3 * _GRANULE, one.query().dirty)

    def test_clear_while_it_is_armed(self):
        """From another monitor: it is too late, and changes nothing."""
        one = self.large(6 * _ARMED)
        watch = self.cleared(one)
        second = self.second()
        arming = self.begun(one.source.arm_disk, watch.token,
                            self.proven(watch, 1, 3 * _ARMED), *one.canary)
        clearing = self.begun(
            second.execute, 'x-dedup-disk-clear',
            {'token': watch.token, 'offset': 0, 'length': watch.size})
        self.assertFalse(arming.done())
        armed = arming.result(60)
        self.assertEqual(3 * _GRANULE, armed.dirty)
        self.assertIn('armed before', str(clearing.exception(60)))
        self.assertEqual(armed, one.query())

    def second(self):
        """Connect to another QMP monitor."""
        made = qmp.QmpConnection('second', events.EventLog())
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(self.path('qmp'))
        made.connect(peer, 60)
        self.addCleanup(made.close)
        return made

    def test_mirror_while_it_is_watched(self):
        """It copies everything, as with a watch that was not armed."""
        one = self.large(4 * _WATCHED)
        watching = self.begun(one.source.watch_disk, 'large', _GRANULE)
        # A file would be allocated, all 64 GiB of it.
        target = json.dumps({'driver': 'raw', 'file': {
            'driver': 'null-co', 'size': 4 * _WATCHED * _GRANULE}})
        self.hmp.run('drive_mirror -n -f null %s' % json.dumps(
            'json:' + target))
        self.assertFalse(watching.done())
        self.assertIn('before the disk was armed',
                      str(watching.exception(60)))
        self.assertEqual('dropped', one.query().state)
        (job,) = one.source.qmp('query-block-jobs')
        self.assertEqual(4 * _WATCHED * _GRANULE, job['len'])
        mark = one.source.events.mark()
        one.source.qmp('block-job-cancel', device=job['device'], force=True)
        one.source.events.wait('BLOCK_JOB_CANCELLED', mark, 60)
        # the watch that takes its place
        again = one.source.watch_disk('large', _GRANULE)
        self.assertEqual(again.size, again.dirty)

    def test_writes_while_it_is_watched(self):
        one = self.large(2 * _WATCHED + 5)
        watching = self.begun(one.source.watch_disk, 'large', _GRANULE)
        self.write(2 * _WATCHED)
        self.assertFalse(watching.done())
        watch = watching.result(60)
        self.assertEqual(('watching', watch.size), (watch.state, watch.dirty))
