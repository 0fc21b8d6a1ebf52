# SPDX-License-Identifier: Apache-2.0
"""Instances of the lab's guest, made through the Compute API."""

import contextlib
import dataclasses
import json
import time

import openstack

from lab import client
from lab import errors
from lab import guest
from lab.cloud import INSTANCES

_STRATEGY = 'dedup_migrate:strategy'
_INDEX = 'dedup_migrate:content_index'


@dataclasses.dataclass(frozen=True)
class Kind:
    """A way to migrate an instance.

    :ivar strategy: extra spec of the flavor; None: that of nova.conf
    :ivar forgets: whether QEMU has to forget, before each migration, what
        it knows about the guest's memory, as after the guest ran where its
        I/O was not recorded
    :ivar index: whether QEMU searches the disks; the image of
        guest.upload_silent keeps the guest from being asked as well
    """

    strategy: str | None = None
    forgets: bool = False
    index: bool = False


KINDS = {
    'stock': Kind('off'),
    'dedup': Kind(),
    # what the guest says it caches, and that alone
    'page_cache': Kind('page_cache', forgets=True),
    # what was recorded, and that alone; both
    'tracking': Kind('shared_nas'),
    'both': Kind('page_cache'),
    'content_index': Kind('page_cache', forgets=True, index=True),
}
ROOTS = ('image', 'volume')
SECONDS = ('ephemeral', 'volume')
_EPHEMERAL_GB = 1


@dataclasses.dataclass(frozen=True)
class Disks:
    """:ivar root: what the instance boots from: image, or a new volume
    :ivar second: where half of its files are: ephemeral, a disk of
        Nova's, or a new volume; None: there is no second disk
    """

    root: str = 'image'
    second: str | None = None

    @classmethod
    def of(cls, settings, root=None, second=None):
        """Return them for a lab with these settings.

        :param root: None: as the lab's profile suggests
        :raises LabError: the lab has no volumes
        """
        root = root or ('volume' if settings.profile == 'volume'
                        else 'image')
        if 'volume' in (root, second) and not settings.has_cinder:
            raise errors.LabError('profile %s has no volumes' % (
                settings.profile))
        return cls(root, second)


def boot(cloud, name, kind, disks, **more):
    """Ask for an instance; one of that name goes first.

    :param kind: of KINDS
    :param more: attributes of the request, such as host
    """
    connection = client.connect(cloud)
    compute = connection.compute
    remove(cloud, name)
    if disks.second:
        guest.upload_halves(cloud)
    image = connection.image.find_image(
        guest.HALF_IMAGE if disks.second else guest.IMAGE,
        ignore_missing=False)
    mapping = []
    if disks.root == 'volume':
        mapping.append(_volume(image, 0))
    if disks.second == 'volume':
        mapping += [] if mapping else [{
            'boot_index': 0, 'uuid': image.id, 'source_type': 'image',
            'destination_type': 'local', 'delete_on_termination': True}]
        data = connection.image.find_image(guest.DATA_IMAGE,
                                           ignore_missing=False)
        mapping.append(_volume(data, -1))
    disk = {} if disks.root == 'volume' else {'image_id': image.id}
    if mapping:
        disk['block_device_mapping'] = mapping
    return compute.create_server(
        name=name, networks='none', **disk, **more,
        flavor_id=_flavor(compute, kind, disks.second == 'ephemeral').id)


def cache_image(cloud, request):
    """Have each compute host keep the image that instances boot from.

    :param request: boot or boot_image, called with cloud, name, 'stock' and
        the host
    """
    compute = client.connect(cloud).compute
    for host in cloud.computes:
        server = request(cloud, 'cache-' + host.name, 'stock',
                         host=host.name)
        wait_active(compute, server, 600)
        delete(compute, server)


def boot_image(cloud, name, kind, image, memory, disk, attached=False,
               **more):
    """Ask for an instance of another image, likewise.

    :param image: its name
    :param memory: MiB
    :param disk: GB
    :param attached: whether it has a port in the network of instances
    :param more: attributes of the request, such as host
    """
    connection = client.connect(cloud)
    remove(cloud, name)
    flavor = '%s-%d-%d' % (kind, memory, disk)
    networks = 'none'
    if attached:
        networks = [{'uuid': connection.network.find_network(
            INSTANCES, ignore_missing=False).id}]
    return connection.compute.create_server(
        name=name, networks=networks, **more,
        image_id=connection.image.find_image(image, ignore_missing=False).id,
        flavor_id=(connection.compute.find_flavor(flavor) or _make_flavor(
            connection.compute, flavor, kind, ram=memory, disk=disk)).id)


def remove(cloud, name):
    """Delete the instance of that name, if there is one."""
    compute = client.connect(cloud).compute
    delete(compute, *compute.servers(name='^%s$' % name))


def delete(compute, *servers):
    """Delete instances, wait until they are gone."""
    for server in servers:
        # One that is DELETED may be in lists until a moment later.
        with contextlib.suppress(openstack.exceptions.NotFoundException):
            compute.delete_server(server, force=True)
    for server in servers:
        compute.wait_for_delete(server, interval=0.5, wait=120)


def _volume(image, index):
    return {'boot_index': index, 'uuid': image.id, 'source_type': 'image',
            'destination_type': 'volume', 'volume_size': 1,
            'delete_on_termination': True}


def flavors(cloud):
    """Make the flavors that users of the lab see from the beginning."""
    compute = client.connect(cloud).compute
    for kind in KINDS:
        _flavor(compute, kind, False)


def _flavor(compute, kind, ephemeral):
    """Return a flavor, made if it is missing."""
    name = '-'.join(['small'] + [kind] * (kind != 'dedup')
                    + ['ephemeral'] * ephemeral)
    return compute.find_flavor(name) or _make_flavor(
        compute, name, kind, ram=guest.MEMORY, disk=1,
        ephemeral=_EPHEMERAL_GB if ephemeral else 0)


def _make_flavor(compute, name, kind, **sizes):
    flavor = compute.create_flavor(name=name, vcpus=1, **sizes)
    specs = {_STRATEGY: KINDS[kind].strategy,
             _INDEX: 'on' if KINDS[kind].index else None}
    specs = {name: value for name, value in specs.items() if value}
    if specs:
        compute.create_flavor_extra_specs(flavor, specs)
    return flavor


def wait_active(compute, server, timeout=300.0):
    """Wait until an instance is ACTIVE.

    :raises LabError: it is not, with Nova's reason
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        server = compute.get_server(server.id)
        if server.status == 'ACTIVE':
            return server
        if server.status == 'ERROR':
            raise errors.LabError('instance %s: %s' % (
                server.name, (server.fault or {}).get('message')))
        time.sleep(0.3)
    raise errors.LabError('instance %s is %s after %.0f s' % (
        server.name, server.status, timeout))


def wait_idle(compute, server, timeout=60.0):
    """Wait until Nova does nothing with an instance.

    :raises LabError: it still does
    """
    deadline = time.monotonic() + timeout
    while True:
        server = compute.get_server(server.id)
        if server.task_state is None:
            return
        if time.monotonic() > deadline:
            raise errors.LabError('instance %s is still in task state %s' % (
                server.name, server.task_state))
        time.sleep(0.3)


def forget(host, server):
    """Have an instance's QEMU forget what it knows of the guest's memory.

    It is recorded again once the guest has arrived somewhere.

    :param host: lab host that the instance is on
    """
    host.run(['virsh', 'qemu-monitor-command', server.id, json.dumps(
        {'execute': 'x-dedup-track', 'arguments': {'enable': False}})],
        # a stock QEMU has nothing to forget
        check=False)


def host_of(cloud, server):
    """The lab host an instance is on."""
    return cloud.host(server.compute_host)


def migration(compute, server):
    """The newest migration of an instance."""
    return max(compute.migrations(instance_uuid=server.id),
               key=lambda one: one.id)
