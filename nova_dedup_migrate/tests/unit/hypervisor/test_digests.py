# SPDX-License-Identifier: Apache-2.0
import base64
import time
from unittest import mock

from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base

_PAGES = digests.PAGES
_TOTAL = 4 * _PAGES
#: Bytes that a page that was looked at stands for.
_PART = 4 * 4096


def reply(total=_TOTAL, changed=0, count=None):
    """A DedupDigestSample in which some digests are others."""
    count = min(total, _PAGES) if count is None else count
    found = b''.join((number + (number < changed) * 65536).to_bytes(4, 'big')
                     for number in range(count))
    return {'pages': total, 'digests': base64.b64encode(found).decode()}


def digests_of(*args, **kwargs):
    return digests.PageDigests.from_qmp(reply(*args, **kwargs))


class PageDigestsTest(base.TestCase):

    def test_written_since(self):
        before = digests_of()
        for changed in 0, 1, 100, _PAGES:
            self.assertEqual(changed * _PART,
                             digests_of(changed=changed).written_since(
                                 before))

    def test_memory_that_is_small(self):
        before = digests_of(total=100)
        self.assertEqual(3 * 4096, digests_of(
            total=100, changed=3).written_since(before))

    def test_memory_was_plugged(self):
        self.assertIsNone(digests_of(total=2 * _TOTAL).written_since(
            digests_of()))

    def test_malformed(self):
        good = reply()
        for wrong in (None, [], {}, {'pages': _TOTAL}, dict(good, pages=-1),
                      dict(good, pages=0), dict(good, digests=7),
                      dict(good, digests=''), dict(good, digests='A' * 10),
                      dict(good, digests='é' + good['digests'][1:]),
                      dict(good, digests='*' + good['digests'][1:]),
                      dict(good, digests=good['digests'] * 1000),
                      reply(count=_PAGES - 1), reply(count=_PAGES + 1),
                      reply(total=100, count=101)):
            self.assertRaises(errors.MalformedReply,
                              digests.PageDigests.from_qmp, wrong)


class MeasureTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.now = 1000.0
        patcher = mock.patch.object(time, 'monotonic',
                                    lambda: self.now)
        patcher.start()
        self.addCleanup(patcher.stop)
        self.changed = {0: 0, 1: 3, 10: 5, 60: 9}
        self.late = 0.0

    def look(self):
        return digests_of(changed=self.changed[int(self.now - 1000)])

    def wait(self, seconds):
        self.now += seconds + self.late

    def measure(self, windows=(1, 10, 60)):
        return list(digests.measure(self.look, windows, self.wait))

    def test_windows_begin_together(self):
        self.assertEqual(
            [digests.Written(1, 1.0, 3 * _PART),
             digests.Written(10, 10.0, 5 * _PART),
             digests.Written(60, 60.0, 9 * _PART)], self.measure())

    def test_a_look_that_is_late(self):
        """The next one is not, and each says how long its window was."""
        self.late = 0.5
        self.assertEqual([1.5, 10.5], [one.seconds
                                       for one in self.measure((1, 10))])

    def test_end(self):
        def wait(seconds):
            self.now += seconds
            return self.now > 1005

        self.assertEqual([1], [one.window for one in digests.measure(
            self.look, (1, 10, 60), wait)])

    def test_memory_was_plugged(self):
        looks = iter((digests_of(), digests_of(changed=1),
                      digests_of(total=2 * _TOTAL)))
        self.assertEqual([1], [one.window for one in digests.measure(
            lambda: next(looks), (1, 10, 60), self.wait)])

    def test_qemu_cannot_do_it(self):
        def look():
            raise errors.DedupNotSupported(name='it')

        self.assertRaises(errors.DedupNotSupported, list,
                          digests.measure(look, (1,), self.wait))
