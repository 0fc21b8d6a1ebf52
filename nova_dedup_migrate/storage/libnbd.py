# SPDX-License-Identifier: Apache-2.0
"""libnbd's Python module.

Distributions have it, as python3-libnbd, and PyPI has not.  A host without
it builds no disks, and everything else works.
"""

try:
    import nbd
except ImportError:
    nbd = None
