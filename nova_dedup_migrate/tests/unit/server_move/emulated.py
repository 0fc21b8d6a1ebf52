# SPDX-License-Identifier: Apache-2.0
"""Nova and Cinder as openstacksdk shows them, with one server.

Values are resources of the SDK, made of what the APIs answer.  What was
requested takes a few looks to be done.
"""

import types

from openstack import exceptions
from openstack.block_storage.v3 import backup
from openstack.block_storage.v3 import service as storage_service
from openstack.block_storage.v3 import snapshot
from openstack.block_storage.v3 import stats
from openstack.block_storage.v3 import type as volume_type
from openstack.block_storage.v3 import volume
from openstack.compute.v2 import migration
from openstack.compute.v2 import server
from openstack.compute.v2 import service as compute_service
from openstack.compute.v2 import volume_attachment

SERVER = '11111111-0000-4000-8000-000000000001'
ROOT = '33333333-0000-4000-8000-000000000003'
DATA = '44444444-0000-4000-8000-000000000004'
BACKUP = '55555555-0000-4000-8000-000000000005'
OLD, NEW = 'control@nas#nas', 'control@nas2#nas2'
#: Looks that Cinder and Nova take.
_LOOKS = 3


def a_volume(uuid, device, **fields):
    return {'id': uuid, 'name': 'data', 'description': None, 'size': 1,
            'volume_type': '__DEFAULT__', 'status': 'in-use',
            'os-vol-tenant-attr:tenant_id': 'project',
            'os-vol-mig-status-attr:migstat': None,
            'os-vol-host-attr:host': OLD, 'availability_zone': 'nova',
            'bootable': 'true', 'encrypted': False, 'multiattach': False,
            'group_id': None, 'replication_status': None,
            'metadata': {'user': 'value', 'readonly': 'False'},
            'attachments': [{'server_id': SERVER, 'device': device}],
            **fields}


class Storage:
    """block_storage

    :ivar fails: the volume whose migration Cinder gives up
    :ivar loses: called with the new record when a volume has moved
    """

    def __init__(self):
        self.volumes = {ROOT: a_volume(ROOT, '/dev/vda'),
                        DATA: a_volume(DATA, '/dev/vdb')}
        self.snapshots_of = {}
        self.backups_of = {ROOT: {BACKUP}, DATA: set()}
        self.types = {'__DEFAULT__': {}, 'on-nas': {
            'volume_backend_name': 'nas'}, 'on-nas2': {
                'volume_backend_name': 'nas2'}}
        self.encrypted_types = set()
        self.free = 100.0
        self.service_state = 'up'
        self.zone = 'nova'
        self.calls = []
        self.fails = None
        self.loses = lambda record: None
        self._left = {}

    def get_volume(self, uuid):
        record = self.volumes[uuid]
        if uuid in self._left:
            self._left[uuid][0] -= 1
            if not self._left[uuid][0]:
                self._complete(uuid, record)
        return volume.Volume.existing(**record)

    def _complete(self, uuid, record):
        _, changes = self._left.pop(uuid)
        record['status'] = 'in-use'
        if uuid == self.fails:
            record['os-vol-mig-status-attr:migstat'] = 'error'
            return
        record['os-vol-mig-status-attr:migstat'] = 'success'
        record.update(changes)
        self.loses(record)

    def begin(self, uuid, **changes):
        """Have Cinder move a volume."""
        self.volumes[uuid]['os-vol-mig-status-attr:migstat'] = 'migrating'
        self._left[uuid] = [_LOOKS, changes]

    def migrate_volume(self, uuid, host):
        self.calls.append(('migrate', uuid, host))
        self.begin(uuid, **{'os-vol-host-attr:host': host})

    def retype_volume(self, uuid, name, policy):
        self.calls.append(('retype', uuid, name, policy))
        self.volumes[uuid]['status'] = 'retyping'
        self.begin(uuid, volume_type=name, **{'os-vol-host-attr:host': NEW})

    def snapshots(self, details, all_projects, volume_id):
        return [snapshot.Snapshot.existing(id=one)
                for one in self.snapshots_of.get(volume_id, ())]

    def backups(self, all_projects, volume_id):
        return [backup.Backup.existing(id=one, status='available')
                for one in self.backups_of[volume_id]]

    def backend_pools(self):
        return [stats.Pools.existing(name=name, capabilities={
            'volume_backend_name': backend,
            'free_capacity_gb': self.free})
            for name, backend in ((OLD, 'nas'), (NEW, 'nas2'))]

    def find_type(self, name):
        if name not in self.types:
            return None
        return volume_type.Type.existing(
            id=name, name=name, extra_specs=self.types[name])

    def get_type_encryption(self, one):
        if one.name in self.encrypted_types:
            return volume_type.TypeEncryption.existing(provider='luks')
        raise exceptions.NotFoundException()

    def services(self, binary):
        return [storage_service.Service.existing(
            host='control@' + name, binary=binary, zone=self.zone,
            state=self.service_state, status='enabled')
            for name in ('nas', 'nas2')]


class Compute:
    """compute

    :ivar outcome: what Nova does about a live migration: completed, error,
        or lost: nothing at all
    """

    def __init__(self):
        self.record = {
            'id': SERVER, 'name': 'one', 'status': 'ACTIVE', 'locked': False,
            'OS-EXT-SRV-ATTR:host': 'compute1',
            'OS-EXT-STS:task_state': None}
        self.attached = [
            {'volumeId': ROOT, 'device': '/dev/vda', 'tag': 'root',
             'delete_on_termination': True},
            {'volumeId': DATA, 'device': '/dev/vdb', 'tag': None,
             'delete_on_termination': False}]
        self.done = [migration.Migration.existing(
            id=1, uuid='earlier', migration_type='live-migration',
            status='error')]
        self.hosts = {'compute1': 'enabled', 'compute2': 'enabled'}
        self.outcome = 'completed'
        self.calls = []
        self.failures = 0
        self._left = 0
        self._goal = None

    def find_server(self, name, all_projects):
        return self.get_server(SERVER) if name in ('one', SERVER) else None

    def get_server(self, uuid):
        if self.failures:
            self.failures -= 1
            raise exceptions.HttpException('the API is away')
        if self._left:
            self._left -= 1
            if not self._left:
                self.record['status'] = 'ACTIVE'
                if self.outcome == 'completed':
                    self.record['OS-EXT-SRV-ATTR:host'] = self._goal
                self.done[-1].status = self.outcome
        return server.Server.existing(**self.record)

    def volume_attachments(self, uuid):
        return [volume_attachment.VolumeAttachment.existing(**one)
                for one in self.attached]

    def services(self, binary, host):
        return [compute_service.Service.existing(
            host=host, binary=binary, zone='nova', state='up',
            status=self.hosts[host])] if host in self.hosts else []

    def migrations(self, instance_uuid):
        return self.done

    def begin(self, host, looks=_LOOKS):
        """Have Nova migrate the server."""
        self._goal, self._left = host, looks
        self.record['status'] = 'MIGRATING'
        self.done.append(migration.Migration.existing(
            id=2, uuid='new', migration_type='live-migration',
            status='running'))

    def live_migrate_server(self, uuid, host, block_migration):
        self.calls.append((uuid, host, block_migration))
        if self.outcome != 'lost':
            self.begin(host)


def connection():
    """Return what openstack.connect() does."""
    return types.SimpleNamespace(compute=Compute(), block_storage=Storage())
