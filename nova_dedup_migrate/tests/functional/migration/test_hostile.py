# SPDX-License-Identifier: Apache-2.0
"""Peers that speak the protocol wrongly: refused, in bounded memory.

No limit here is one of time.  That QEMU goes on to answer its monitor is seen
from the order of events: it answers while a flood still comes.
"""

import itertools
import os
import pathlib
import re
import signal
import subprocess
import threading

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import peers
from testkit import options

_MIB = 1 << 20
_PAGES = (32 * _MIB) >> 12
_DISK = '/machine/peripheral/disk0/virtio-backend'


def _status(pid, field):
    """Bytes of a field of /proc/PID/status."""
    text = pathlib.Path('/proc/%d/status' % pid).read_text()
    return int(re.search(r'^%s:\s+(\d+) kB' % field, text, re.M)[1]) << 10


class HostileCase(case.MigrationCase):

    def watch(self, guest):
        """Begin to measure how much memory a guest's QEMU takes."""
        # the peak counts from here on
        pathlib.Path('/proc/%d/clear_refs' % guest.pid).write_text('5')
        self.before = _status(guest.pid, 'VmRSS')

    def assert_grown_by(self, guest, most):
        """It answers, and took no more than `most` bytes at any time.

        How many MiB it took goes into the file that DEDUP_TEST_FIGURES
        names, for make qemu-hardening.
        """
        guest.qmp('query-status')
        grown = _status(guest.pid, 'VmHWM') - self.before
        if figures := os.environ.get('DEDUP_TEST_FIGURES'):
            with open(figures, 'a') as file:
                file.write('%.1f\n' % (grown / _MIB))
        self.assertLess(grown, most)

    def answers_during(self, guest, peer, bursts):
        """It answers before all of a burst has been read.

        It is stopped until much of the burst waits for it.

        :param bursts: of some MiB each; one may be over too early on a busy
            machine
        """
        for burst in itertools.islice(bursts, 20):
            sending = threading.Thread(target=peer.send, args=(burst,))
            os.kill(guest.pid, signal.SIGSTOP)
            try:
                sending.start()
                self.eventually(lambda: peer.unread() > 4 * _MIB,
                                'the burst')
            finally:
                os.kill(guest.pid, signal.SIGCONT)
            guest.qmp('query-status')
            left = peer.unread()
            sending.join(60)
            if left > _MIB:
                return
        self.fail('it answers only when it has read all')


class HostileSourceTest(HostileCase):

    def destination(self, inject='', memory_mib=32):
        """A destination that waits, and is not ended by a failure."""
        one = self.rig(inject=inject, machine=peers.MACHINE,
                       memory_mib=memory_mib)
        guest = one.destination
        guest.start_incoming()
        guest.qmp('migrate-incoming', uri='unix:%s' % guest.migration_socket,
                  **{'exit-on-error': False})
        self.watch(guest)
        return guest

    def connected(self, guest):
        source = peers.FakeSource(guest.migration_socket)
        self.addCleanup(source.close)
        return source

    def greeted(self, inject='', disks=(_DISK,), memory_mib=32):
        guest = self.destination(inject, memory_mib)
        source = self.connected(guest)
        source.greet()
        source.drain()
        source.send(peers.setup(memory_mib << 8, disks))
        return guest, source

    def assert_refused(self, guest, why, most=8 * _MIB):
        def failed():
            return guest.qmp('query-migrate').get('status') == 'failed'
        self.eventually(failed, 'refusal')
        # Some of it QEMU 10.2 no longer prints.
        self.assertIn(why, guest.log.read_text()
                      + guest.qmp('query-migrate').get('error-desc', ''))
        self.assert_grown_by(guest, most)

    def refused(self, *parts, why='is malformed', most=8 * _MIB):
        guest, source = self.greeted()
        source.send(*parts)
        self.assert_refused(guest, why, most)

    def test_right(self):
        """Or the refusals below would show nothing."""
        guest, source = self.greeted()
        source.send(peers.extents(0, [(0, 1 << 20, 0)]), peers.epoch(1),
                    peers.records(1, 64))

        def arrived():
            found = guest.dedup_statistics().incoming
            return found if found and found.nack_digest == 64 else None
        self.eventually(arrived, 'records that are read')

    def test_setup_without_hello(self):
        guest = self.destination()
        source = self.connected(guest)
        source.send(peers.opening(), peers.ram_section(),
                    peers.setup(_PAGES, [_DISK]))
        self.assert_refused(guest, 'element 1 of 94 bytes is not expected')

    def test_setup_from_a_file(self):
        path = self.directory / 'state'
        path.write_bytes(
            peers.opening() + peers.command(1) + peers.ping()
            + peers.ram_section() + peers.setup(_PAGES, [_DISK]))
        guest = self.rig(machine=peers.MACHINE).destination
        guest.start_incoming()
        self.watch(guest)
        guest.qmp('migrate-incoming', uri='file:%s' % path,
                  **{'exit-on-error': False})
        self.assert_refused(guest, 'is not expected')

    def test_setup_from_a_snapshot(self):
        """In an image that somebody else has made.

        Without a return path: QEMU's own code does not survive one here.
        """
        path = self.directory / 'state.qcow2'
        img = pathlib.Path(self.binary).with_name('qemu-img')
        subprocess.run([img, 'create', '-q', '-f', 'qcow2', path, '64M'],
                       check=True)
        state = ('-blockdev', '{"driver":"qcow2","node-name":"state","file":'
                 '{"driver":"file","filename":"%s"}}' % path)
        hostile = (peers.opening() + peers.ram_section()
                   + peers.setup(_PAGES, [_DISK]))
        for load in False, True:
            guest = self.rig(machine=peers.MACHINE, extra_args=state).source
            guest.start(paused=True)
            if load:
                content = path.read_bytes()
                at = content.index(b'QEVM\0\0\0\x03')
                path.write_bytes(content[:at] + hostile
                                 + content[at + len(hostile):])
                guest.destroy()
                guest.start(paused=True)
                self.watch(guest)
            guest.qmp('snapshot-' + ('load' if load else 'save'), tag='one',
                      vmstate='state', devices=['state'], **{'job-id': 'job'})

            def over(guest=guest):
                job, = guest.qmp('query-jobs')
                return job if job['status'] == 'concluded' else None
            job = self.eventually(over, 'the snapshot')
            self.assertEqual(load, 'error' in job, job)
            if not load:
                guest.destroy()
        self.assertIn('element 1 of 94 bytes is not expected',
                      guest.log.read_text())
        self.assert_grown_by(guest, 8 * _MIB)

    def test_length_of_4_gib(self):
        for kind in (peers.EXTENTS, peers.RECORDS, peers.BATCH, 99):
            self.refused(peers.element(kind, b'', 0xffffffff),
                         why='of 4294967295 bytes is not expected')

    def test_truncated(self):
        guest, source = self.greeted()
        source.send(peers.records(1, 64)[:100])
        source.socket.shutdown(1)
        self.assert_refused(guest, 'error while loading state')

    def test_more_extents_than_allowed(self):
        some = [(n << 20, 4096, 0) for n in range(peers.MAX_EXTENTS + 1)]
        self.refused(peers.extents(0, some))

    def test_fewer_extents_than_said(self):
        self.refused(peers.extents(0, [(0, 4096, 0)], number=1024))

    def test_extents_of_a_disk_that_is_none(self):
        self.refused(peers.extents(1, [(0, 4096, 0)]))

    def test_extents_beyond_all(self):
        for extent in ((1 << 63) - 1, 4096, 0), (0, 4096, (1 << 63) - 1), (
                0, 0, 0):
            self.refused(peers.extents(0, [extent]))

    def test_records_out_of_bounds(self):
        for bad in (peers.records(0, 1), peers.records(peers.MAX_ID + 1, 1),
                    peers.records(0xffffffff, 2),
                    peers.records(1, 1, page=_PAGES),
                    peers.records(1, 1, page=-1),
                    peers.records(1, 1, sector=1 << 55),
                    peers.records(1, 1, block=1), peers.records(1, 1, disk=1),
                    peers.records(9, 1) + peers.records(9, 1)):
            self.refused(peers.epoch(1), bad)

    def test_records_before_an_epoch(self):
        self.refused(peers.records(1, 1))

    def test_epochs_that_do_not_ascend(self):
        self.refused(peers.epoch(2), peers.epoch(2))

    def test_second_setup(self):
        self.refused(peers.setup(_PAGES, [_DISK]), why='second SETUP')

    def test_same_disk_often(self):
        """Each would be opened once more."""
        guest, _ = self.greeted(disks=[_DISK] * 127)
        self.assert_refused(guest, 'is malformed')

    def test_flood_of_descending_extents(self):
        guest, source = self.greeted()

        burst = b''.join(peers.extents(0, [
            ((1 << 46) - ((turn << 10 | n) << 20), 4096, n << 13)
            for n in range(peers.MAX_EXTENTS)]) for turn in range(1024))
        self.answers_during(guest, source, itertools.repeat(burst))
        self.assert_grown_by(guest, 160 * _MIB)

    def test_more_extents_than_fit(self):
        """On many disks, so that none has too many."""
        disks = ['/machine/%d' % n for n in range(126)]
        guest, source = self.greeted(disks=[_DISK, *disks])
        for turn, number in itertools.product(range(64), range(127)):
            if not source.send(peers.extents(number, [
                    ((turn << 12 | n) << 20, 4096, n << 13)
                    for n in range(peers.MAX_EXTENTS)])):
                break
        self.assert_refused(guest, 'is malformed', 160 * _MIB)

    def test_flood_of_records(self):
        """Each takes the place of one that is still waiting."""
        guest, source = self.greeted(inject='fetch-delay-us=60000000')
        source.send(peers.extents(0, [(0, 64 * _MIB, 0)]), peers.epoch(1))
        self.answers_during(guest, source, peers.records_flood(4000))
        self.assert_grown_by(guest, 48 * _MIB)

    def test_flood_of_records_while_storage_hangs(self):
        """For all pages of a large guest, over and over."""
        guest, source = self.greeted(inject='fetch-delay-us=60000000',
                                     memory_mib=4096)
        source.send(peers.extents(0, [(0, 4096 * _MIB, 0)]), peers.epoch(1))
        self.answers_during(
            guest, source, peers.records_flood(4000, (4096 << 8) // 4000))
        for burst in itertools.islice(peers.records_flood(
                500, (4096 << 8) // 500, 200_000_000), 4):
            source.send(burst)
        self.assert_grown_by(guest, 320 * _MIB)

    def test_flood_of_epochs(self):
        guest, source = self.greeted()
        self.answers_during(guest, source, (
            b''.join(map(peers.epoch, range(first, first + 500000)))
            for first in range(1, 1 << 31, 500000)))
        self.assert_grown_by(guest, 8 * _MIB)

    def test_flood_for_a_version_that_is_unknown(self):
        """Every record is answered, and nobody takes the answers."""
        guest = self.destination()
        source = self.connected(guest)
        source.greet()
        source.send(peers.setup(_PAGES, [_DISK], version=99))
        self.answers_during(guest, source, peers.records_flood(4000))
        self.assert_grown_by(guest, 96 * _MIB)


class HostileDestinationTest(HostileCase):

    def attacked(self, greeting=None, pages=case.PAGES):
        """Migrate to a hostile destination; return Rig and that."""
        one = self.rig()
        one.boot()
        one.read_pages(pages)
        path = self.directory / 'hostile.sock'
        hostile = peers.FakeDestination(path, greeting)
        self.addCleanup(hostile.close)
        wanted = options.MigrationOptions(max_bandwidth=1 << 20)
        one.source.arm_dedup(resend=False)
        one.source.qmp('migrate-set-capabilities',
                       capabilities=wanted.qmp_capabilities())
        one.source.qmp('migrate-set-parameters', **{
            **wanted.qmp_parameters(), 'downtime-limit': 1})
        self.watch(one.source)
        one.source.qmp('migrate', uri='unix:%s' % path)
        self.eventually(lambda: one.figures().state not in (
            'armed', 'negotiating'), 'records')
        return one, hostile

    def recorded(self, one):
        self.eventually(lambda: one.figures().record_pages
                        >= len(case.PAGES), 'records')

    def assert_well(self, one, hostile, most=8 * _MIB):
        """The migration can be ended, and the guest goes on at home."""
        self.assert_grown_by(one.source, most)
        hostile.close()
        self.eventually(lambda: one.source.qmp('query-migrate')['status']
                        in ('failed', 'cancelled'), 'the end')
        self.assertEqual('running', one.source.run_state())
        one.check_home()
        one.source.destroy()

    def test_right(self):
        """Or the refusals below would show nothing."""
        one, hostile = self.attacked()
        self.recorded(one)
        hostile.send(peers.answers((1, len(case.PAGES), peers.OK)))
        self.eventually(lambda: one.figures().storage_pages
                        == len(case.PAGES), 'answers')
        self.assert_well(one, hostile)

    def violated(self, *messages):
        one, hostile = self.attacked()
        self.recorded(one)
        hostile.send(*messages)
        self.eventually(lambda: one.figures().reason, 'the reason')
        self.assertIn('answered records that were not sent',
                      one.figures().reason)
        self.assertEqual('draining', one.figures().state)
        self.assert_well(one, hostile)

    def test_answers_for_ids_never_sent(self):
        for first, number in ((0, 1), (len(case.PAGES), 2),
                              (1, 0xfffffffe), (peers.MAX_ID, 1)):
            self.violated(peers.answers((first, number, peers.OK)))

    def test_answered_twice(self):
        self.violated(*[peers.answers((1, 16, peers.DIGEST))] * 3)

    def test_flood_of_answers_twice(self):
        one, hostile = self.attacked()
        self.recorded(one)
        self.answers_during(one.source, hostile, itertools.repeat(
            peers.answers(*[(n % 16 + 1, 1, peers.OK)
                            for n in range(100)]) * 160000))
        self.assert_well(one, hostile)

    def test_flood_of_empty_answers(self):
        one, hostile = self.attacked()
        self.answers_during(one.source, hostile,
                            itertools.repeat(peers.answers() * 1000000))
        self.assert_well(one, hostile)

    def test_flood_of_greetings(self):
        one, hostile = self.attacked()
        self.answers_during(one.source, hostile,
                            itertools.repeat(peers.hello() * 1000000))
        self.assert_well(one, hostile)

    def test_message_that_is_too_long(self):
        one, hostile = self.attacked()
        hostile.send(peers.message(b'', 0xffff), b'\2' * 0xffff)
        self.assert_well(one, hostile)

    def test_message_that_is_cut(self):
        one, hostile = self.attacked()
        hostile.send(peers.message(b'\2abc', 400))
        self.assert_well(one, hostile)

    def test_random_messages(self):
        one, hostile = self.attacked()
        self.recorded(one)
        for seed in range(256):
            hostile.send(peers.message(bytes(
                (2, *((seed * k) % 256 for k in range(64))))))
        self.assert_well(one, hostile)

    def test_unknown_version(self):
        one, hostile = self.attacked(peers.hello(version=77))
        self.assertIn('version 77', one.figures().reason)
        self.assert_well(one, hostile)


class HostileMapTest(HostileCase):
    """Maps of page caches come from what a guest says."""

    def test_most_extents_there_can_be(self):
        """Bounded memory; and the largest extents, beyond all memory."""
        number = (1 << 24) - 1
        path = self.directory / 'map'
        with path.open('wb') as file:
            file.write(b'QDEDUPM1' + (1).to_bytes(4, 'little')
                       + (64).to_bytes(4, 'little')
                       + (1).to_bytes(8, 'little')
                       + number.to_bytes(8, 'little') + bytes(32)
                       + _DISK.encode().ljust(256, b'\0'))
            for first in range(0, number, 1 << 16):
                file.write(b''.join(
                    (n << 36).to_bytes(8, 'little') + bytes(8)
                    + (1 << 24).to_bytes(4, 'little') + bytes(4)
                    for n in range(first, min(first + (1 << 16), number))))
        one = self.rig()
        one.boot(track=False)
        self.watch(one.source)
        with path.open('rb') as file:
            one.source.load_dedup_map(file.fileno())

        def over():
            hints = one.source.dedup_statistics().hints
            return hints if hints.map_state != 'loading' else None
        hints = self.eventually(over, 'the map', timeout=90)
        self.assertEqual('loaded', hints.map_state, hints.map_error)
        self.assertEqual(number << 24,
                         hints.map_pages + hints.map_kept + hints.map_skipped)
        self.assert_grown_by(one.source, 16 * _MIB)
