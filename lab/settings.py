# SPDX-License-Identifier: Apache-2.0
"""What a lab is asked to be; kept in the lab's directory, settings.json."""

import dataclasses
import json
import pathlib
import secrets

from lab import errors

PROFILES = ('shared', 'local', 'volume', 'ceph')
DRIVERS = ('dedup', 'stock')
QEMUS = ('patched', 'stock')
#: [dedup_migrate] disks.
DISKS = ('off', 'auto', 'always')
TOP = pathlib.Path(__file__).resolve().parents[1]
MBIT = 125_000


@dataclasses.dataclass(frozen=True)
class Settings:
    """:ivar profile: where disks are. shared: instances_path is on the
        NAS; local: on the compute hosts; volume: Cinder volumes on the
        NAS; ceph: RBD
    :ivar drivers: the Nova driver of each compute host, of DRIVERS
    :ivar qemus: the QEMU of each compute host, of QEMUS
    :ivar migration_rate: bytes/s of each compute host's link to the
        migration network, each way; 0: no limit
    :ivar migration_delay: ms that a round trip between two compute hosts takes
        in the migration network; 0: no delay
    :ivar storage_rate: bytes/s of the NAS's link, each way; 0: no limit
    :ivar tls: whether migrations are encrypted by QEMU
    :ivar tracking: whether guests' I/O is recorded: track_io
    :ivar disks: whether destinations build disks of block migrations, of
        DISKS
    :ivar flat: whether disks of instances are raw files without a base,
        instead of qcow2 over a cached image
    :ivar controller: whether there is one
    :ivar dashboard: whether there is Horizon with our panels
    :ivar backups: whether volumes have a second backend, cinder-backup and
        two cinder-backup-assist
    :ivar password: of the database, the message queue and all users
    """

    profile: str = 'shared'
    drivers: tuple = ('dedup', 'dedup')
    qemus: tuple = ('patched', 'patched')
    migration_rate: int = 100 * MBIT
    storage_rate: int = 0
    tls: bool = False
    tracking: bool = True
    disks: str = 'off'
    flat: bool = False
    controller: bool = False
    dashboard: bool = False
    backups: bool = False
    migration_delay: float = 0.0
    password: str = dataclasses.field(
        default_factory=lambda: secrets.token_hex(8), compare=False)

    @property
    def hosts(self):
        """Names of the compute hosts."""
        return tuple('compute%d' % (i + 1) for i in range(len(self.drivers)))

    @property
    def builds_disks(self):
        return self.profile == 'local' and self.disks != 'off'

    @property
    def has_nas(self):
        return self.profile in ('shared', 'volume')

    @property
    def nases(self):
        """Names of the hosts that are a NAS."""
        return (('nas',) if self.has_nas else ()) + (
            ('nas2',) if self.backups else ())

    @property
    def backup_nases(self):
        """Names of the NASes that have the backup store."""
        return ('nas3',) if self.backups else ()

    @property
    def backup_hosts(self):
        """Names of the hosts that can read the backup store."""
        return ('backup1', 'backup2') if self.backups else ()

    @property
    def has_cinder(self):
        return self.profile in ('volume', 'ceph')

    @property
    def has_ceph(self):
        return self.profile == 'ceph'

    def save(self, directory):
        (directory / 'settings.json').write_text(
            json.dumps(dataclasses.asdict(self), indent=1) + '\n')

    @classmethod
    def load(cls, directory):
        """Return those of the lab in a directory, None if there is none.

        :raises LabError: they are not readable
        """
        path = directory / 'settings.json'
        try:
            values = json.loads(path.read_text())
            values['drivers'] = tuple(values['drivers'])
            values['qemus'] = tuple(values['qemus'])
            return cls(**values)
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise errors.LabError(
                '%s is damaged (%s): run make lab-down' % (path, error)
            ) from error


def of_each_host(text, choices):
    """Read "a" or "a,b": one for all compute hosts, or one for each.

    :raises ValueError:
    """
    values = tuple(text.split(','))
    if len(values) == 1:
        values *= 2
    if len(values) != 2 or not set(values) <= set(choices):
        raise ValueError('%r: expected one or two of %s, as in %s,%s' % (
            text, ', '.join(choices), *choices[:2]))
    return values
