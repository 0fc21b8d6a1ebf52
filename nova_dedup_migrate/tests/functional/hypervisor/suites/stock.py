# SPDX-License-Identifier: Apache-2.0
"""A QEMU without dedup."""

import tempfile

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite


class StockSuite(suite.Suite):
    """A QEMU without dedup says so."""

    def test_dedup_is_not_supported(self):
        guest = self.make('guest')
        guest.start(paused=True)
        with tempfile.TemporaryFile() as file:
            for call in (guest.track_dedup, guest.arm_dedup,
                         guest.disarm_dedup, guest.dedup_statistics,
                         guest.sample_hints,
                         lambda: guest.load_dedup_map(file.fileno())):
                error = self.assertRaises(errors.DedupNotSupported, call)
                self.assertEqual(guest.name, error.name)

    def test_is_not_patched(self):
        guest = self.make('guest')
        guest.start(paused=True)
        self.assertFalse(guest.is_patched())

    def test_no_dedup_in_progress(self):
        source, destination = self.started(), self.make('destination')
        final = self.migrate(source, destination).wait(60)
        self.assertIsNone(final.dedup)
