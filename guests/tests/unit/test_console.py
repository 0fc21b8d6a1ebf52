# SPDX-License-Identifier: Apache-2.0
"""Asking the guest; a pseudo terminal is its console."""

import os
import pathlib
import threading

from guests import errors
from guests.synthetic import console
from nova_dedup_migrate.tests import base


class AskTest(base.TestCase):

    def ask(self, *replies):
        """Let the guest answer what it is asked with these lines."""
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)

        def answer():
            os.read(ours, 1024)
            for reply in replies:
                os.write(ours, reply + b'\n')

        thread = threading.Thread(target=answer)
        thread.start()
        self.addCleanup(thread.join)
        return console.ask(pathlib.Path(os.ttyname(theirs)), 'verify cache',
                         30.0)

    def test_answer(self):
        self.assertEqual(5, self.ask(
            b'{"type":"report","seq":1}',
            b'{"type":"reply","command":"ping","ok":true}',
            b'{"type":"reply","command":"verify","ok":true,"cache":5}'
        )['cache'])

    def test_refused(self):
        error = self.assertRaises(
            errors.GuestFailed, self.ask,
            b'{"type":"reply","command":"verify","ok":false,'
            b'"message":"what?"}')
        self.assertIn('what?', str(error))

    def test_the_first_command_is_still_being_done(self):
        """On a slow machine it is sent again before it is answered."""
        self.assertEqual(5, self.ask(
            b'{"type":"reply","command":"verify","ok":false,'
            b'"message":"busy"}',
            b'{"type":"reply","command":"verify","ok":true,"cache":5}'
        )['cache'])
