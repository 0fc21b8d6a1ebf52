# SPDX-License-Identifier: Apache-2.0
"""What tests of the Nova side share."""

import libvirt
from nova import objects
from nova.virt.libvirt import guest as libvirt_guest

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.tests.unit.operations import samples

# Nova makes its classes known when a service starts.
objects.register_all()
# Nova 32 imports libvirt when it opens its first guest.
libvirt_guest.libvirt = libvirt

MIGRATION = '11111111-0000-4000-8000-000000000001'
UUID = '22222222-0000-4000-8000-000000000002'


def libvirt_error(code):
    error = libvirt.libvirtError('test')
    error.err = (code, libvirt.VIR_FROM_QEMU, 'test', 2, '', '', '', -1, -1)
    return error


def operation(saved=None, **fields):
    """Return an Operation from here to there.

    :param saved: list that takes the phase each time it is written
    :param fields: of operations.Durable
    """
    return samples.make(
        lambda one: (saved if saved is not None else []).append(one.phase),
        **{'id': MIGRATION, 'subject': UUID, 'source': 'here',
           'destination': 'there', 'strategy_source': 'nova.conf',
           'phase': operations.REQUESTED, **fields})
