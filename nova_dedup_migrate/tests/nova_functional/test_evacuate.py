# SPDX-License-Identifier: Apache-2.0
"""Nova's tests of evacuation, with one kind of local disk and RBD."""

from nova_dedup_migrate.tests.nova_functional import adopt

globals().update(adopt.adopt(
    'libvirt.test_evacuate',
    'LibvirtQcowEvacuateTest',
    'LibvirtRbdEvacuateTest.test_evacuate_failure_shared'))
