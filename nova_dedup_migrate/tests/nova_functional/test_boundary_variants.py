# SPDX-License-Identifier: Apache-2.0
"""Steps that other storage, claims and a vTPM add."""

import fixtures
from nova import crypto
from nova.tests.fixtures import libvirt as fakelibvirt

from nova_dedup_migrate.tests.nova_functional import boundary
from nova_dedup_migrate.tests.nova_functional import boundary_steps


class SharedTest(boundary.Boundary):
    """The hosts share the directory of the instances."""

    shared = True


class ClaimsTest(boundary.Boundary):
    """The instance has pinned CPUs, which both hosts claim meanwhile."""

    ADDITIONAL_FILTERS = ['NUMATopologyFilter']

    def setUp(self):
        self.flags(cpu_dedicated_set='0-3', group='compute')
        super().setUp()

    def boot(self, host='src', **more):
        return super().boot(host, flavor_id=self._create_flavor(
            ephemeral=0, extra_spec={'hw:cpu_policy': 'dedicated'}), **more)


class VTPMTest(boundary.Boundary):
    """The instance has a vTPM whose secret both hosts keep."""

    def setUp(self):
        self.flags(swtpm_enabled=True, group='libvirt')
        self.flags(
            backend='nova.tests.functional.libvirt.test_vtpm.FakeKeyManager',
            group='key_manager')
        super().setUp()
        self.key_manager = crypto._get_key_manager()

    def _replace_outside(self):
        super()._replace_outside()
        self.useFixture(fixtures.MockPatch(
            'nova.virt.libvirt.driver.LibvirtDriver._check_vtpm_support'))
        self.replace(
            fakelibvirt.virConnect, '_domain_capability_tpm',
            fakelibvirt.virConnect._domain_capability_tpm_supported)

    def boot(self, host='src', **more):
        return super().boot(host, flavor_id=self._create_flavor(
            ephemeral=0, extra_spec={
                'hw:tpm_model': 'tpm-tis', 'hw:tpm_version': '1.2',
                'hw:tpm_secret_security': 'host'}), **more)


def _add(owner, post, rollback):
    for steps, arrives in ((post, True), (rollback, False)):
        for name, method in boundary.rows(steps, arrives,
                                          owner.__name__[:-4]).items():
            setattr(owner, name, method)


_add(SharedTest, boundary_steps.POST_SHARED, boundary_steps.ROLLBACK_SHARED)
_add(ClaimsTest, boundary_steps.POST_CLAIMS, boundary_steps.ROLLBACK_CLAIMS)
_add(VTPMTest, boundary_steps.POST_VTPM, boundary_steps.ROLLBACK_VTPM)
