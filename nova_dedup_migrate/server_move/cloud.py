# SPDX-License-Identifier: Apache-2.0
"""What a move reads and calls of Nova and Cinder, through openstacksdk."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions

from nova_dedup_migrate.server_move import errors

#: Of metadata, what Cinder itself writes.
_OWN_METADATA = ('attached_mode', 'readonly')
_NOT_REPLICATED = (None, '', 'disabled', 'not-capable')
#: Statuses of a migration of a volume that is under way.
_MIGRATING = ('starting', 'migrating', 'completing')
_RETYPING = 'retyping'


@dataclasses.dataclass(frozen=True)
class Attachment:
    """A volume of a server, as Nova has it."""

    volume_id: str
    device: str
    tag: str | None
    delete_on_termination: bool


@dataclasses.dataclass(frozen=True)
class Server:
    """:ivar attachments: in the order of their devices
    :ivar fault: Nova's reason, if there is one
    """

    id: str
    name: str
    host: str
    status: str
    task_state: str | None
    locked: bool
    attachments: tuple[Attachment, ...]
    fault: str = ''


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume, as Cinder has it.

    :ivar kind: name of its type
    :ivar host: host@backend#pool
    :ivar size: GiB
    :ivar attachments: (UUID of the server, device)
    """

    id: str
    name: str
    description: str | None
    project_id: str
    size: int
    kind: str
    status: str
    migration_status: str | None
    host: str
    zone: str
    bootable: bool
    encrypted: bool
    multiattach: bool
    group: str
    replication: str | None
    metadata: dict[str, str]
    image_metadata: dict[str, str]
    attachments: tuple[tuple[str, str], ...]

    @property
    def moving(self) -> bool:
        """Whether Cinder moves it now."""
        return (self.migration_status in _MIGRATING
                or self.status == _RETYPING)

    @property
    def replicated(self) -> bool:
        return self.replication not in _NOT_REPLICATED

    @property
    def title(self) -> str:
        return '%s (%s)' % (self.name, self.id) if self.name else self.id


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool of a backend.

    :ivar backend: volume_backend_name
    :ivar free: GiB, None if it is not known
    """

    name: str
    backend: str
    free: float | None


@dataclasses.dataclass(frozen=True)
class Type:
    """A type of volumes.

    :ivar backend: volume_backend_name that it needs, '' for any
    """

    name: str
    backend: str
    encrypted: bool


@dataclasses.dataclass(frozen=True)
class Service:
    """:ivar usable: whether it is up and enabled"""

    host: str
    zone: str
    usable: bool


@dataclasses.dataclass(frozen=True)
class Migration:
    uuid: str
    kind: str
    status: str


class Cloud:
    """:param connection: openstack.connection.Connection"""

    def __init__(self, connection: Any) -> None:
        self._compute = connection.compute
        self._storage = connection.block_storage

    # Reading

    def find_server(self, name: str) -> Server:
        """Return the server of a name or an ID.

        :raises NotFound:
        """
        with _calling('find server %s' % name):
            found = self._compute.find_server(name, all_projects=True)
        if found is None:
            raise errors.NotFound(kind='server', name=name)
        return self.server(found.id)

    def server(self, server_id: str) -> Server:
        with _calling('show server %s' % server_id):
            one = self._compute.get_server(server_id)
            attached = [Attachment(
                each.volume_id, each.device or '', each.tag,
                bool(each.delete_on_termination))
                for each in self._compute.volume_attachments(server_id)]
        return Server(
            one.id, one.name or '', one.compute_host or '', one.status or '',
            one.task_state, bool(one.is_locked),
            tuple(sorted(attached, key=lambda each: each.device)),
            str((one.fault or {}).get('message', ''))[:500])

    def volume(self, volume_id: str) -> Volume:
        with _calling('show volume %s' % volume_id):
            one = self._storage.get_volume(volume_id)
        return Volume(
            one.id, one.name or '', one.description, one.project_id or '',
            int(one.size or 0), one.volume_type or '', one.status or '',
            one.migration_status, one.host or '',
            one.availability_zone or '', bool(one.is_bootable),
            bool(one.is_encrypted), bool(one.is_multiattach),
            one.group_id or one.consistency_group_id or '',
            one.replication_status,
            {name: value for name, value in (one.metadata or {}).items()
             if name not in _OWN_METADATA},
            dict(one.volume_image_metadata or {}),
            tuple(sorted((each['server_id'], each.get('device') or '')
                         for each in one.attachments or ())))

    def snapshots(self, volume_id: str) -> list[str]:
        """Return the IDs of the snapshots of a volume."""
        with _calling('list the snapshots of volume %s' % volume_id):
            return [one.id for one in self._storage.snapshots(
                details=False, all_projects=True, volume_id=volume_id)]

    def backups(self, volume_id: str) -> dict[str, str]:
        """Return the status of each backup of a volume by its ID."""
        with _calling('list the backups of volume %s' % volume_id):
            return {one.id: one.status for one in self._storage.backups(
                all_projects=True, volume_id=volume_id)}

    def pools(self) -> dict[str, Pool]:
        """Return the pools of all backends by name."""
        with _calling('list the pools of backends'):
            return {one.name: _pool(one)
                    for one in self._storage.backend_pools()}

    def volume_type(self, name: str) -> Type | None:
        with _calling('show volume type %s' % name):
            one = self._storage.find_type(name)
            if one is None:
                return None
            specs = one.extra_specs or {}
            with contextlib.suppress(exceptions.NotFoundException):
                encryption = self._storage.get_type_encryption(one)
                return Type(one.name,
                            str(specs.get('volume_backend_name', '')),
                            bool(getattr(encryption, 'provider', None)))
            return Type(one.name, str(specs.get('volume_backend_name', '')),
                        False)

    def compute_service(self, host: str) -> Service | None:
        """Return nova-compute of a host."""
        with _calling('list the services of Nova'):
            return _service(self._compute.services(binary='nova-compute',
                                                   host=host), host)

    def volume_service(self, backend: str) -> Service | None:
        """Return cinder-volume of a backend, host@backend."""
        with _calling('list the services of Cinder'):
            return _service(self._storage.services(binary='cinder-volume'),
                            backend)

    def migration(self, server_id: str) -> Migration | None:
        """Return the newest migration of a server."""
        with _calling('list the migrations of server %s' % server_id):
            found = list(self._compute.migrations(instance_uuid=server_id))
        if not found:
            return None
        newest = max(found, key=lambda one: int(one.id))
        return Migration(newest.uuid, newest.migration_type or '',
                         newest.status or '')

    # Changing

    def migrate_volume(self, volume_id: str, pool: str) -> None:
        """Request that a volume is moved to another backend."""
        with _calling('migrate volume %s' % volume_id):
            self._storage.migrate_volume(volume_id, host=pool)

    def retype_volume(self, volume_id: str, name: str) -> None:
        """Request another type, and that the volume moves if need be."""
        with _calling('retype volume %s' % volume_id):
            self._storage.retype_volume(volume_id, name, 'on-demand')

    def live_migrate(self, server_id: str, host: str) -> None:
        """Request a live migration; the scheduler checks the host."""
        with _calling('migrate server %s' % server_id):
            self._compute.live_migrate_server(server_id, host=host,
                                              block_migration='auto')


@contextlib.contextmanager
def _calling(doing: str) -> Iterator[None]:
    try:
        yield
    except (exceptions.SDKException,
            ksa_exceptions.ClientException) as error:
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise errors.CallFailed(doing=doing, reason=words[:500]) from error


def _pool(one: Any) -> Pool:
    known = one.capabilities or {}
    free = known.get('free_capacity_gb')
    # 'infinite' and 'unknown' are words.
    return Pool(one.name, str(known.get('volume_backend_name', '')),
                float(free) if isinstance(free, int | float) else None)


def _service(services: Any, host: str) -> Service | None:
    return next((Service(one.host, one.availability_zone or '',
                         one.state == 'up' and one.status == 'enabled')
                 for one in services if one.host == host), None)
