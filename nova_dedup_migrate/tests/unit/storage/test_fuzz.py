# SPDX-License-Identifier: Apache-2.0
"""A short run of fuzz_storage, with parsers as they are and with faults."""

import random
from unittest import mock

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import journal
from nova_dedup_migrate.storage.channel import frames
from nova_dedup_migrate.storage.channel import tickets
from nova_dedup_migrate.storage.index import segment
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests import fuzz_storage


class FuzzTest(base.TestCase):

    def test_parsers(self):
        for name, fuzzer in fuzz_storage.PARSERS.items():
            with self.subTest(name):
                fuzzer(random.Random(1), 400)

    def assert_found(self, name, where, attribute, fault):
        with mock.patch.object(where, attribute, fault):
            self.assertRaises(AssertionError, self.run_, name)

    def run_(self, name):
        for seed in range(10):
            fuzz_storage.PARSERS[name](random.Random(seed), 400)

    def test_faults_are_found(self):
        """Checks of the parsers that are missing, one at a time."""
        for name, where, attribute, fault in (
                ('manifest', bitmap.Bitmap, 'is_clear',
                 lambda *given: True),
                ('manifest', bitmap.Bitmap, 'is_set', lambda *given: True),
                ('journal', journal.Journal, '_check',
                 lambda *given: None),
                ('frames', frames, 'unpack_content',
                 lambda data, count: [None, data, None]),
                ('tickets', tickets, 'LIFETIME', float('inf')),
                ('segments', segment, 'is_allowed',
                 lambda found, allowed: found == found)):
            with self.subTest(attribute):
                self.assert_found(name, where, attribute, fault)

    def test_a_ticket_of_another_host(self):
        class Tickets(tickets.Tickets):

            def take(self, ticket, hosts):
                return super().take(ticket, {'one', 'two'})

        self.assert_found('tickets', tickets, 'Tickets', Tickets)
