# SPDX-License-Identifier: Apache-2.0
"""The tests of all packages that start QEMU, libvirt or hosts."""

import tests


def load_tests(loader, found, pattern):
    return tests.find(*(
        (package + '/tests/functional', '.') for package in tests.PACKAGES
        if (tests.TOP / package / 'tests/functional').is_dir()),
        pattern=pattern)
