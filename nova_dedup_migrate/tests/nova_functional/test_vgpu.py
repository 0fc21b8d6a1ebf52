# SPDX-License-Identifier: Apache-2.0
"""Nova's tests of vGPUs: those that live-migrate."""

from nova_dedup_migrate.tests.nova_functional import adopt

globals().update(adopt.adopt(
    'libvirt.test_vgpu',
    'LiveMigration'))
