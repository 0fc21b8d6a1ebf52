# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.tests import base

GIB = 1 << 30
PAGES = GIB >> 12


def reply(used, sampled=1024, pages=PAGES):
    return {'pages': pages, 'sampled': sampled, 'used': used}


class InUseTest(base.TestCase):

    def test_half_is_used(self):
        found = sampling.InUse.from_qmp(reply(512))
        self.assertEqual((GIB / 2, 1024), (found.bytes, found.pages))
        self.assertAlmostEqual(GIB / 64, found.error, delta=GIB / 1e3)

    def test_all_or_nothing_is_not_certain(self):
        for used in (0, 1024):
            found = sampling.InUse.from_qmp(reply(used))
            self.assertEqual(used / 1024 * GIB, found.bytes)
            self.assertGreater(found.error, 0)

    def test_a_small_guest(self):
        found = sampling.InUse.from_qmp(reply(8, 32, 32))
        self.assertEqual((8 << 12, 32), (found.bytes, found.pages))

    def test_malformed(self):
        for answer in (None, [], {}, {'pages': 5}, reply(2, 1), reply(-1),
                       reply(0, 0), reply(1, PAGES + 1), reply('1'),
                       reply(1, sampling.LEAST - 1)):
            self.assertRaises(errors.MalformedReply,
                              sampling.InUse.from_qmp, answer)
