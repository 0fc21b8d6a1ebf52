# SPDX-License-Identifier: Apache-2.0
"""Nova's tests of UEFI: the definition of the guest."""

from nova_dedup_migrate.tests.nova_functional import adopt

globals().update(adopt.adopt(
    'libvirt.test_uefi',
    'UEFIServersTest.test_create_server'))
