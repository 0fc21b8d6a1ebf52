# SPDX-License-Identifier: Apache-2.0
import math

from nova_dedup_migrate import values
from nova_dedup_migrate.tests import base


class ValuesTest(base.TestCase):

    def test_count(self):
        for value in (0, 1, 9):
            self.assertTrue(values.is_count(value, 9), value)
        for value in (-1, 10, 1.0, '1', None, True, False, [], math.nan):
            self.assertFalse(values.is_count(value, 9), value)

    def test_finite(self):
        for value in (0, 1, 0.5, 1e300):
            self.assertEqual(value, values.finite(value))
            self.assertIsInstance(values.finite(value), float)
        for value in (-1, -0.1, math.nan, math.inf, 10 ** 400, '1', None,
                      True, []):
            self.assertIsNone(values.finite(value), value)
