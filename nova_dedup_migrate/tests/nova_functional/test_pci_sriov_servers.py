# SPDX-License-Identifier: Apache-2.0
"""Nova's tests of PCI devices: those that live-migrate or evacuate."""

from nova_dedup_migrate.tests.nova_functional import adopt

globals().update(adopt.adopt(
    'libvirt.test_pci_sriov_servers',
    'test_live_migrate_VF_success',
    'test_live_migrate_server_with',
    'test_live_migrate_VF_fails_dest',
    'VDPAServersTest.test_live_migrate',
    'test_evacuate',
    'change_bound_port_vnic_type_kills'))
