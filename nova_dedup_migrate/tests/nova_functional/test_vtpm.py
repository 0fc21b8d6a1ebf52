# SPDX-License-Identifier: Apache-2.0
"""Nova's tests of vTPM: those that migrate or start again."""

from nova_dedup_migrate.tests.nova_functional import adopt

globals().update(adopt.adopt(
    'libvirt.test_vtpm',
    'VTPMServersTest.test_live',
    'VTPMServersTest.test_hard_reboot_server',
    'VTPMServersTestNonShared.test_live_migrate_server_secret'))
