# SPDX-License-Identifier: Apache-2.0
"""Nova, Placement and Glance, through openstacksdk, as an ordinary user.

Nothing here is repeated by itself.  A call that changes something raises
CloudRefused if Nova has certainly done nothing, and CloudUnavailable if
that is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import itertools
from typing import Any

from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import loading
import openstack
from openstack import exceptions
from oslo_config import cfg
from oslo_utils import timeutils

from nova_dedup_migrate.conf import controller as options
from nova_dedup_migrate.engine import errors

COMPUTE = 'nova-compute'
LIVE = 'live-migration'
COLD = 'migration'
#: Statuses of a migration after which Nova does nothing more.
COMPLETED = ('completed', 'confirmed', 'done')
FAILED = ('error', 'failed', 'cancelled')
#: Of a cold migration that waits for its confirmation.
FINISHED = 'finished'
#: Statuses in which Nova accepts a request to abort a live migration.
ABORTABLE = ('queued', 'preparing', 'running')
#: Nova's numbers of power states in which there is a QEMU: running, paused.
_RUNNING = (1, 3)
#: Trait of a host whose nova-compute is disabled.
_DISABLED = 'COMPUTE_STATUS_DISABLED'
#: Entries of a page of Nova where it has no marker, and of Glance.
_PAGE = 1000


@dataclasses.dataclass(frozen=True)
class Server:
    """An instance as Nova shows it.

    :ivar node: name of its host in Placement
    :ivar running: whether a QEMU has its memory, also if it is paused
    :ivar memory: bytes of its flavor
    :ivar resources: of Placement, by class
    :ivar extra_specs: of its flavor
    """

    id: str
    name: str
    project_id: str
    host: str
    node: str
    status: str
    task_state: str | None
    running: bool
    memory: int
    resources: dict[str, int]
    extra_specs: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Group:
    """A server group.

    :ivar members: UUIDs of servers that are not deleted
    """

    id: str
    policy: str
    members: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Migration:
    """:ivar kind: LIVE, COLD or another type of Nova
    :ivar created_at: seconds since the epoch, by Nova's clock
    """

    uuid: str
    number: int
    server_id: str
    project_id: str | None
    kind: str
    status: str
    source: str
    destination: str
    created_at: float

    @property
    def over(self) -> bool:
        return self.status in COMPLETED + FAILED


@dataclasses.dataclass(frozen=True)
class Service:
    """The nova-compute of a host."""

    id: str
    host: str
    up: bool
    enabled: bool
    reason: str


class Cloud:
    """Thread-safe.

    :param connection: openstack.connection.Connection
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def _compute(self) -> Any:
        # It logs in when it is first used, which fails if OpenStack is away.
        return self._connection.compute

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> Cloud:
        """Log in as [openstack] has it."""
        group = options.OPENSTACK.name
        auth = loading.load_auth_from_conf_options(conf, group)
        session = loading.load_session_from_conf_options(conf, group,
                                                         auth=auth)
        section = conf[group]
        return cls(openstack.connection.Connection(
            session=session, region_name=section.region_name,
            compute_api_version='2',
            interface=(section.valid_interfaces or ['internal'])[0],
            app_name='nova-dedup-migrate'))

    # Reading

    def servers(self, host: str) -> list[Server]:
        """Return the servers that Nova has on a host."""
        with _reading('list the servers of %s' % host):
            return [_server(one) for one in self._compute.servers(
                details=True, all_projects=True, compute_host=host)]

    def server(self, server_id: str) -> Server:
        """Return a server.

        :raises NoSuchServer:
        """
        with _reading('show server %s' % server_id):
            try:
                return _server(self._compute.get_server(server_id))
            except exceptions.NotFoundException as error:
                raise errors.NoSuchServer(server_id=server_id) from error

    def migrations(self, since: float, **filters: str) -> list[Migration]:
        """Return the migrations that changed since a time.

        :param since: seconds since the epoch
        :param filters: source_compute, migration_type, server_id, host
        """
        with _reading('list migrations'):
            return [_migration(one) for one in self._compute.migrations(
                changes_since=datetime.datetime.fromtimestamp(
                    since, datetime.timezone.utc).strftime(
                        '%Y-%m-%dT%H:%M:%SZ'), **filters)]

    def requests(self, server_id: str, action: str) -> list[str]:
        """Return the IDs of the requests for an action on a server.

        The API notes a request before it answers it.
        """
        with _reading('list the actions of server %s' % server_id):
            return [one.request_id
                    for one in self._compute.server_actions(server_id)
                    if one.action == action]

    def service(self, host: str) -> Service | None:
        """Return nova-compute of a host, None if there is none."""
        with _reading('list services'):
            found = list(self._compute.services(binary=COMPUTE, host=host))
        return _service(found[0]) if found else None

    def groups(self) -> list[Group]:
        """Return the server groups of all projects.

        A list of servers does not have them, and to show each server
        would be a request for each.
        """
        made: list[Group] = []
        with _reading('list server groups'):
            while True:
                response = self._compute.get(
                    '/os-server-groups', microversion='2.64', params={
                        'all_projects': 'True', 'limit': str(_PAGE),
                        'offset': str(len(made))})
                exceptions.raise_from_response(response)
                page = response.json()['server_groups']
                made += [Group(one['id'], one['policy'],
                               frozenset(one['members'])) for one in page]
                if len(page) < _PAGE:
                    return made

    def has_room(self, resources: dict[str, int], beside: str) -> bool:
        """Whether an enabled host other than one has room for a server.

        :param resources: by class of Placement
        :param beside: name in Placement of the host it is to leave
        """
        with _reading('list allocation candidates'):
            response = self._connection.placement.get(
                '/allocation_candidates', microversion='1.29',
                params={'limit': '1000', 'required': '!' + _DISABLED,
                        'resources': ','.join(
                            '%s:%d' % pair
                            for pair in sorted(resources.items()))})
            exceptions.raise_from_response(response)
            found = response.json()
            own = self._connection.placement.get(
                '/resource_providers', microversion='1.29',
                params={'name': beside})
            exceptions.raise_from_response(own)
        mine = {one['uuid'] for one in own.json()['resource_providers']}
        return any(mine.isdisjoint(one['allocations'])
                   for one in found['allocation_requests'])

    def public_images(self, most: int) -> list[str]:
        """Return the IDs of the public images, the newest first.

        Hidden ones come last: instances of them may still run.

        :param most: how many, at most
        :raises CloudUnavailable: also if only a part could be read
        """
        with _reading('list the public images'):
            found = itertools.chain.from_iterable(
                self._connection.image.images(
                    visibility='public', status='active', is_hidden=hidden,
                    sort='created_at:desc', limit=_PAGE)
                for hidden in (False, True))
            # It may have been hidden between the two.
            return list(dict.fromkeys(
                one.id for one in itertools.islice(found, most)
                if one.visibility == 'public' and one.status == 'active'))

    # Changing

    def live_migrate(self, server_id: str) -> None:
        """Request a live migration; Nova chooses the destination."""
        with _changing('migrate server %s' % server_id):
            self._compute.live_migrate_server(server_id, host=None,
                                              block_migration='auto')

    def migrate(self, server_id: str) -> None:
        """Request a cold migration."""
        with _changing('migrate server %s' % server_id):
            self._compute.migrate_server(server_id)

    def confirm(self, server_id: str) -> None:
        """Confirm a cold migration."""
        with _changing('confirm the migration of server %s' % server_id):
            self._compute.confirm_server_resize(server_id)

    def stop(self, server_id: str) -> None:
        """Request that a server is shut down."""
        with _changing('stop server %s' % server_id):
            self._compute.stop_server(server_id)

    def abort(self, server_id: str, migration: Migration) -> None:
        """Request that a live migration ends."""
        with _changing('abort migration %s' % migration.uuid):
            self._compute.abort_server_migration(migration.number,
                                                 server_id)

    def disable(self, service: Service, reason: str) -> None:
        """Keep Nova from placing servers on a host."""
        with _changing('disable nova-compute of %s' % service.host):
            self._compute.disable_service(service.id,
                                          disabled_reason=reason)

    def enable(self, service: Service) -> None:
        with _changing('enable nova-compute of %s' % service.host):
            self._compute.enable_service(service.id)


@contextlib.contextmanager
def _reading(doing: str) -> Iterator[None]:
    try:
        yield
    except (exceptions.SDKException,
            ksa_exceptions.ClientException) as error:
        raise errors.CloudUnavailable(doing=doing,
                                      reason=_words(error)) from error


@contextlib.contextmanager
def _changing(doing: str) -> Iterator[None]:
    try:
        yield
    except exceptions.HttpException as error:
        status = error.status_code or 0
        if 400 <= status < 500 and status not in (408, 425):
            raise errors.CloudRefused(doing=doing, reason=_words(error),
                                      status=status) from error
        raise errors.CloudUnavailable(doing=doing,
                                      reason=_words(error)) from error
    except (ksa_exceptions.ConnectTimeout,
            ksa_exceptions.EndpointNotFound,
            ksa_exceptions.Unauthorized) as error:
        # The request has not been sent, or not been listened to.
        raise errors.CloudRefused(doing=doing, reason=_words(error),
                                  status=0) from error
    except (exceptions.SDKException,
            ksa_exceptions.ClientException) as error:
        raise errors.CloudUnavailable(doing=doing,
                                      reason=_words(error)) from error


def _words(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:500]


def _server(one: Any) -> Server:
    flavor = one.flavor
    specs = dict(flavor.extra_specs or {})
    resources = {'VCPU': int(flavor.vcpus or 0),
                 'MEMORY_MB': int(flavor.ram or 0)}
    return Server(
        id=one.id, name=(one.name or '')[:255],
        project_id=one.project_id or '', host=one.compute_host or '',
        node=one.hypervisor_hostname or one.compute_host or '',
        status=one.status or '', task_state=one.task_state,
        running=one.power_state in _RUNNING,
        memory=int(flavor.ram or 0) << 20,
        resources={name: number for name, number in resources.items()
                   if number},
        extra_specs=specs)


def _migration(one: Any) -> Migration:
    return Migration(
        uuid=one.uuid, number=int(one.id), server_id=one.server_id,
        project_id=one.project_id, kind=one.migration_type or '',
        status=one.status or '', source=one.source_compute or '',
        destination=one.dest_compute or '',
        created_at=timeutils.normalize_time(timeutils.parse_isotime(
            one.created_at)).replace(
                tzinfo=datetime.timezone.utc).timestamp()
        if one.created_at else 0.0)


def _service(one: Any) -> Service:
    return Service(id=str(one.id), host=one.host, up=one.state == 'up',
                   enabled=one.status == 'enabled',
                   reason=one.disabled_reason or '')
