# SPDX-License-Identifier: Apache-2.0
"""What a planner asks for."""

import functools
import time

from nova_dedup_migrate.hypervisor import agent
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import memory
from nova_dedup_migrate.pagecache import devices
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite
from testkit import spec


class FactsSuite(suite.Suite):
    """What a planner asks for."""

    def test_dirty_rate(self):
        guest = self.started()
        # It writes to 8 MiB all the time, unless the machine has other
        # things to do.
        rate = self.eventually(guest.dirty_rate, 'writes', 60)
        self.assertLess(rate, 12 * suite.MIB)
        guest.pause()
        self.assertLess(guest.dirty_rate(), suite.MIB)

    def test_memory_in_use(self):
        guest = self.started()
        guest.pause()
        if not guest.is_patched():
            self.assertRaises(errors.DedupNotSupported, guest.memory_in_use)
            return
        found = guest.memory_in_use()
        image = guest.save_memory(self.dir / 'memory')
        zero = bytes(memory.PAGE)
        content = b''.join(file.path.read_bytes() for file in image.files)
        used = memory.PAGE * sum(
            content[at:at + memory.PAGE] != zero
            for at in range(0, len(content), memory.PAGE))
        self.assertGreater(used, 8 * suite.MIB)
        # One test in thousands is further off than four standard errors.
        self.assertLess(abs(found.bytes - used), 4 * found.error, found)

    def test_page_digests(self):
        """Windows of several lengths, and a dirty rate meanwhile."""
        guest = self.started()
        if not guest.is_patched():
            self.assertRaises(errors.DedupNotSupported, guest.page_digests,
                              1)
            return
        look = functools.partial(guest.page_digests, 1)
        short, long = digests.measure(
            look, (1, 3), lambda seconds: guest.dirty_rate() and None)
        # It writes to 8 MiB again and again, and to little else.
        self.assertGreater(long.bytes, 7 * suite.MIB)
        self.assertLess(long.bytes, 12 * suite.MIB)
        self.assertLessEqual(short.bytes, long.bytes)
        guest.pause()
        self.assertEqual(0, look().written_since(look()))

    def test_disk_bytes_written(self):
        # it only reads
        guest = self.started()
        self.assertEqual(0, guest.disk_bytes_written())

    def test_disks(self):
        guest = self.make('guest')
        guest.start(paused=True)
        (name, device), = guest.disks().items()
        self.assertTrue(name)
        guest.qmp('qom-get', path='/machine/peripheral/' + device,
                  property='type')

    def test_nobody_to_talk_to(self):
        guest = self.started()
        self.assertEqual(channel.MISSING, guest.channel_state('port'))
        self.assertRaises(errors.ChannelUnavailable, guest.open_channel,
                          'port')
        self.assertRaises(errors.AgentUnavailable, guest.agent,
                          'guest-info')

    def test_port_of_a_guest_that_does_not_listen(self):
        guest = self.make('guest', channels=(
            spec.Channel('port', 'virtio-serial', 'socket'),
            spec.Channel(agent.PORT, 'virtio-serial', 'socket')))
        guest.start()
        self.assertEqual(channel.CLOSED, guest.channel_state('port'))
        for _ in range(2):
            with guest.open_channel('port') as port:
                port.send(b'hello', time.monotonic() + 60)
                self.assertRaises(errors.WaitTimeout, port.receive,
                                  time.monotonic() + 0.2)
        self.assertRaises(errors.AgentUnavailable, guest.agent,
                          'guest-info')
        self.assert_works(guest)

    def test_places_of_disks(self):
        guest = self.make('guest')
        guest.start(paused=True)
        (name, device), = guest.disks().items()
        found, = devices.find(guest)
        self.assertEqual((device, 'virtio-blk'), (found.id, found.bus))
        self.assertEqual(0, found.pci[-1][1])

    def test_progress_without_a_migration(self):
        guest = self.started()
        now = guest.progress()
        self.assertEqual('none', now.status)
        self.assertEqual(guest.is_patched(), now.dedup is not None)
