# SPDX-License-Identifier: Apache-2.0
"""The unit tests of all packages, and of the tool that builds QEMU."""

import tests


def load_tests(loader, found, pattern):
    return tests.find(
        *((package + '/tests/unit', '.') for package in tests.PACKAGES),
        # debtool uses buildtool, which is found by then
        ('qemu/buildtool/tests', 'qemu'),
        ('packages/debtool/tests', 'packages'), ('tests/unit/repository', '.'),
        pattern=pattern)
