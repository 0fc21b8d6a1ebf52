# SPDX-License-Identifier: Apache-2.0
"""Whether a value from outside is what it should be.

JSON and Python disagree about numbers: true is an integer to Python, and
an integer of JSON may be too large for a float.  Those who decode say in
their own words what they do not take.
"""

import math


def is_count(value, limit):
    """Whether value is an integer of 0 to limit."""
    return (isinstance(value, int) and not isinstance(value, bool)
            and 0 <= value <= limit)


def finite(value):
    """Return value as a float of 0 or more, None if it is no such."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        result = float(value)
    except OverflowError:
        return None
    return result if math.isfinite(result) and result >= 0 else None
