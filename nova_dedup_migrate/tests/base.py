# SPDX-License-Identifier: Apache-2.0
"""What all tests share."""

import logging
import os
import pathlib
import time

import fixtures
import testtools


class TestCase(testtools.TestCase):
    """Logs are captured; a test that hangs is ended."""

    timeout = 60

    def setUp(self):
        super().setUp()
        seconds = float(os.environ.get('DEDUP_TEST_TIMEOUT', self.timeout))
        self.useFixture(fixtures.Timeout(int(seconds), gentle=True))
        self.useFixture(fixtures.FakeLogger(level=logging.INFO))

    def temporary_dir(self):
        """Path of a directory that is removed after the test."""
        return pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def eventually(self, condition, what, timeout=30.0, interval=0.01):
        """Poll until condition() is true and return its value."""
        deadline = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() > deadline:
                self.fail('%s: not within %s s' % (what, timeout))
            time.sleep(interval)
