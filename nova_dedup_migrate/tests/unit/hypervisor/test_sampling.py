# SPDX-License-Identifier: Apache-2.0
import itertools
import math
import random
import time
from unittest import mock

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import memory
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.tests import base

#: As QEMU 10.0 prints it, cut.
MTREE = '''\
FlatView #0
 AS "memory", root: system
 AS "cpu-memory-0", root: system
 Root memory region: system
  0000000000000000-000000000009ffff (prio 0, ram): pc.ram
  00000000000a0000-00000000000bffff (prio 1, i/o): vga-lowmem
  00000000000c0000-00000000000cafff (prio 0, rom): pc.ram @00000000000c0000
  0000000000100000-%016x (prio 0, ram): pc.ram @0000000000100000 KVM
  00000000fc000000-00000000fcffffff (prio 0, ramd): 0000:00:10.0 mmap[0]
  00000000fd000000-00000000fd000fff (prio 1, nv-ram): nvdimm
  00000000fffc0000-00000000ffffffff (prio 0, rom): pc.bios

FlatView #1
 AS "I/O", root: io
 Root memory region: io
  0000000000000000-000000000000ffff (prio 0, ram): not memory
'''


def page(word=0, at=511):
    words = [0] * 512
    words[at] = word
    return ''.join('%016x: 0x%016x 0x%016x\r\n'
                   % (0x1000 + 8 * number, *words[number:number + 2])
                   for number in range(0, 512, 2))


_USED, _ZERO = page(0xf00), page()


class Monitor:
    """HMP over memory whose pages used(address) are not zero."""

    def __init__(self, size, used):
        self._tree = MTREE % (0x100000 + size - 1)
        self._used = used
        self.asked = []

    def __call__(self, line):
        if line == 'info mtree -f':
            return self._tree
        command, address = line.split()
        assert command == 'xp/512gx', line
        self.asked.append(int(address, 16))
        return _USED if self._used(self.asked[-1]) else _ZERO


class SamplingTest(base.TestCase):

    def sample(self, size, used, seconds=math.inf):
        self.monitor = Monitor(size, used)
        return sampling.in_use(self.monitor, seconds,
                               random.Random(7).randrange)

    def test_half_is_used(self):
        size = 1 << 30
        for used in (lambda address: address < size // 2,
                     lambda address: address >> 12 & 1,
                     lambda address: address >> 22 & 1):
            found = self.sample(size, used)
            self.assertEqual(1024, found.pages)
            self.assertAlmostEqual(size / 2, found.bytes,
                                   delta=2.5 * found.error)
            self.assertAlmostEqual(size / 64, found.error, delta=size / 1e3)

    def test_what_lies_together_is_found_exactly(self):
        size = 1 << 30
        found = self.sample(size, lambda address: address < size // 3)
        self.assertAlmostEqual(size / 3, found.bytes, delta=size / 500)

    def test_all_or_nothing_is_not_certain(self):
        for used in (0, 1):
            found = self.sample(1 << 30, lambda address, used=used: used)
            self.assertAlmostEqual(used * (1 << 30), found.bytes,
                                   delta=2 << 20)
            self.assertGreater(found.error, 0)

    def test_addresses(self):
        self.sample(1 << 20, lambda address: True)
        total = 160 + 256 + 1
        # so few pages are all looked at, each once, and none twice
        self.assertEqual(total, len(set(self.monitor.asked)))
        self.assertEqual({0, 0x9f000, 0x100000, 0x1ff000, 0xfd000000},
                         {0, 0x9f000, 0x100000, 0x1ff000, 0xfd000000}
                         & set(self.monitor.asked))
        self.assertFalse([address for address in self.monitor.asked
                          if 0xa0000 <= address < 0x100000])

    def test_early_pages_are_spread(self):
        self.sample(1 << 30, lambda address: True)
        first = sorted(address >> 26 for address in self.monitor.asked[:16])
        self.assertEqual(list(range(16)), first)

    def test_no_time(self):
        self.assertRaises(errors.WaitTimeout, self.sample, 1 << 30,
                          lambda address: True, -1.0)

    def test_time_for_the_least(self):
        """It goes on for a while if it has seen next to nothing."""
        for slowness, expected in ((0.001, 1000), (0.003, 334),
                                   (0.005, 257), (0.01, 201),
                                   (0.05, 64)):
            clock = itertools.count()
            with mock.patch.object(
                    time, 'monotonic', autospec=True,
                    side_effect=lambda c=clock, s=slowness: next(c) * s):
                found = self.sample(1 << 30, lambda address: True, 1.0)
            self.assertAlmostEqual(expected, found.pages, delta=2)

    def test_a_page_that_was_unplugged(self):
        monitor = Monitor(1 << 20, lambda address: True)

        def unplugged(line):
            if line.endswith('0xfd000000'):
                return 'Cannot access memory\r\n'
            return monitor(line)

        found = sampling.in_use(unplugged, math.inf)
        self.assertEqual(160 + 256, found.pages)

    def test_each_bit_counts(self):
        for at in (0, 1, 511):
            self.assertTrue(sampling._holds_something(page(1, at)))
            self.assertTrue(sampling._holds_something(page(1 << 63, at)))
        self.assertFalse(sampling._holds_something(page()))

    def test_malformed(self):
        tree = MTREE % 0x3fffffff
        for tree_answer, page_answer in (
                (None, page()), ('', page()), (tree * 3000, page()),
                ('FlatView #0\n AS "I/O", root: io\n', page()),
                (tree, None), (tree, ''), (tree, page()[:-20]),
                (tree, page() + page()), (tree, 'x' * (2 << 20))):
            self.assertRaises(
                errors.MalformedReply, sampling.in_use,
                lambda line, answers=(tree_answer, page_answer): answers[
                    not line.startswith('info')], math.inf)

    def test_parts_of_pages_are_left_out(self):
        text = MTREE % 0x100fff
        text = text.replace('000000000009ffff (', '00000000000017ff (')
        self.assertEqual(
            (memory.RamRange(0, 4096), memory.RamRange(0x100000, 4096),
             memory.RamRange(0xfd000000, 4096)), sampling.ram(text))
