# SPDX-License-Identifier: Apache-2.0
"""A guest that libvirt runs, and that we start and migrate ourselves.

libvirt has no way to do some of what testkit.guest offers; that is listed
in the contributor's guide, and refused with NotOffered.
"""

import pathlib
import uuid as uuids

import libvirt

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt as product
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_monitor
from testkit import guest
from testkit import libvirt_migration
from testkit import libvirt_xml


class LibvirtHost(libvirt_host.LibvirtHost):
    """A libvirtd.

    :param peer_uri: how another host's libvirtd reaches it
    """

    def __init__(self, uri, peer_uri=None):
        super().__init__(uri)
        self.peer_uri = peer_uri or uri


class LibvirtGuest(product.LibvirtGuest, guest.Guest):
    """A domain that is not defined in libvirt.

    :param host: LibvirtHost
    :ivar unsafe: the caller knows that both hosts see the same bytes of
        the disks; libvirt is not to judge by the file system
    """

    source_stays = False

    def __init__(self, host, uuid, name=None):
        super().__init__(host, uuid, name)
        self.unsafe = False
        self.spec = None
        self.run_dir = None

    @classmethod
    def from_spec(cls, host, spec, run_dir, name=None, unsafe=False):
        """Describe a guest, which start() or a migration to it makes.

        :param spec: GuestSpec
        :param run_dir: directory on the host for its console and channels
        """
        guest = cls(host, str(uuids.uuid4()), name or spec.name)
        guest.spec = spec
        guest.run_dir = pathlib.Path(run_dir).absolute()
        guest.unsafe = unsafe
        return guest

    # Files

    @property
    def console(self):
        """Path of what the guest wrote to COM1."""
        return self.run_dir / 'console.log'

    def start(self, paused=False):
        if self.is_alive():
            raise errors.InvalidMigrationState(action='start twice',
                                               status=self.run_state())
        self.close()
        flags = libvirt.VIR_DOMAIN_START_PAUSED if paused else 0
        # the first event may precede the call's return
        self._follow()
        try:
            if self.spec is None:
                self.domain().createWithFlags(flags)
                return
            self.run_dir.mkdir(parents=True, exist_ok=True)
            self.host.connection.createXML(
                libvirt_xml.build(self.spec, self.name, self.uuid,
                                  self.run_dir), flags)
        except libvirt.libvirtError as error:
            if error.get_error_code() in (libvirt.VIR_ERR_INTERNAL_ERROR,
                                          libvirt.VIR_ERR_OPERATION_FAILED):
                raise errors.GuestExited(
                    name=self.name, status='unknown',
                    log=error.get_error_message()) from error
            raise libvirt_monitor.convert(error, self.name,
                                          'start') from error

    def destroy(self):
        try:
            with libvirt_monitor.converting(self.name, 'destroy'):
                self.domain().destroy()
        except errors.GuestNotRunning:
            # it is idempotent
            pass
        except errors.HypervisorRefused as error:
            if error.code != libvirt.VIR_ERR_OPERATION_INVALID:
                raise
            # likewise, of a domain that is defined but does not run

    def pause(self):
        with libvirt_monitor.converting(self.name, 'pause'):
            self.domain().suspend()

    def cont(self):
        with libvirt_monitor.converting(self.name, 'cont'):
            self.domain().resume()

    # Migration

    def migrate(self, destination, options):
        return libvirt_migration.begin(self, destination, options)

    def become(self, source):
        """Be the destination of a migration, ahead of it."""
        self.close()
        self.uuid = source.uuid
        if self.run_dir is not None:
            self.run_dir.mkdir(parents=True, exist_ok=True)
        self._follow()

    def migration_parameters(self, source):
        """What the destination has to be like, as VIR_MIGRATE_PARAM_."""
        result = {libvirt.VIR_MIGRATE_PARAM_DEST_NAME: self.name}
        if self.spec is not None and source.run_dir is not None:
            with libvirt_monitor.converting(source.name, 'read the XML'):
                xml = source.domain().XMLDesc(
                    libvirt.VIR_DOMAIN_XML_MIGRATABLE)
            result[libvirt.VIR_MIGRATE_PARAM_DEST_XML] = libvirt_xml.moved(
                xml, self.spec.binary, source.run_dir, self.run_dir)
        return result

    def job_statistics(self):
        """libvirt's figures of the migration that brought the guest."""
        with libvirt_monitor.converting(self.name, 'read job statistics'):
            return self.domain().jobStats(
                libvirt.VIR_DOMAIN_JOB_STATS_COMPLETED
                | libvirt.VIR_DOMAIN_JOB_STATS_KEEP_COMPLETED)
