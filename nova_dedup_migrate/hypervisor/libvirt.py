# SPDX-License-Identifier: Apache-2.0
"""A guest that libvirt runs.

Nova's guests are looked at with from_domain(), and migrated by Nova.
Tests, and programs without Nova, define one with from_spec() and use the
whole interface.  What libvirt has no way to do is listed in the
contributor's guide; it is refused with NotOffered.
"""

import pathlib
import threading
import uuid as uuids

import libvirt

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import libvirt_channel
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_migration
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.hypervisor import libvirt_xml
from nova_dedup_migrate.hypervisor import qmp_guest

LibvirtHost = libvirt_host.LibvirtHost


class LibvirtGuest(qmp_guest.QmpGuest):
    """A domain.

    :param host: LibvirtHost
    :param uuid: text
    :param name: for people
    :ivar unsafe: the caller knows that both hosts see the same bytes of
        the disks; libvirt is not to judge by the file system
    """

    source_stays = False

    def __init__(self, host, uuid, name=None):
        self.host = host
        self.uuid = str(uuids.UUID(uuid))
        self.name = name or self.uuid
        self.unsafe = False
        self.spec = None
        self.run_dir = None
        self._given = None
        self._owns_host = False
        self._log = None
        self._end = None
        self._lock = threading.Lock()

    @classmethod
    def from_domain(cls, domain, host=None):
        """Make one of a libvirt.virDomain.

        :param host: LibvirtHost, default one over the domain's
            connection, whose owner runs libvirt's event loop
        """
        guest = cls(host or LibvirtHost.of(domain),
                    domain.UUIDString(), domain.name())
        guest._given = domain
        guest._owns_host = host is None
        return guest

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

    # Events

    @property
    def events(self):
        return self._follow()

    def _follow(self):
        """Return the log of events, which is kept from the first call on."""
        with self._lock:
            if self._log is None:
                log = events.EventLog()
                self._log, self._end = log, self._record(log)
            return self._log

    def _record(self, log):
        def callback(uuid, event, data):
            if uuid != self.uuid:
                return
            if event is None:
                log.close()
            else:
                log.add(event, data)
        return self.host.subscribe(callback)

    def close(self):
        with self._lock:
            end, self._end, self._log = self._end, None, None
        if end is not None:
            end()
            if self._owns_host:
                self.host.close()

    # Life

    def domain(self):
        """Return the libvirt.virDomain.

        :raises GuestNotRunning:
        """
        if self._given is not None:
            return self._given
        return self.host.domain(self.uuid, self.name)

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

    def is_alive(self):
        try:
            with libvirt_monitor.converting(self.name, 'look at'):
                return bool(self.domain().isActive())
        except errors.GuestNotRunning:
            return False

    # Monitor

    def execute(self, command, arguments, timeout=None):
        return libvirt_monitor.execute(self.domain(), self.name, command,
                                       arguments,
                                       timeout or self.qmp_timeout)

    def execute_series(self, what, function, timeout):
        return libvirt_monitor.series(self.domain(), self.name, what,
                                      function, timeout)

    def execute_with_fd(self, fd, command, arguments):
        return libvirt_monitor.execute(self.domain(), self.name, command,
                                       arguments, self.qmp_timeout, fd)

    def run_state(self):
        try:
            return super().run_state()
        except errors.InvalidMigrationState:
            # of a guest that arrives libvirt tells no more
            with libvirt_monitor.converting(self.name, 'look at'):
                state = self.domain().state()[0]
            return ('running' if state == libvirt.VIR_DOMAIN_RUNNING
                    else 'inmigrate')

    def pause(self):
        with libvirt_monitor.converting(self.name, 'pause'):
            self.domain().suspend()

    def cont(self):
        with libvirt_monitor.converting(self.name, 'cont'):
            self.domain().resume()

    def disks(self):
        with libvirt_monitor.converting(self.name, 'read the XML'):
            return libvirt_xml.disks(self.domain().XMLDesc())

    # Guest

    def agent(self, command, arguments=None, timeout=5.0):
        return libvirt_channel.execute(self.domain(), command, arguments,
                                       timeout)

    def channel_state(self, name):
        with libvirt_monitor.converting(self.name, 'read the XML'):
            return libvirt_channel.state(self.domain().XMLDesc(), name)

    def open_channel(self, name):
        return libvirt_channel.LibvirtChannel(self.domain(), name)

    # Migration

    def migrate(self, destination, options):
        return libvirt_migration.begin(self, destination, options)

    def allow_downtime(self, milliseconds):
        # behind its back libvirt would put its own value back
        with libvirt_monitor.converting(self.name, 'allow a downtime'):
            self.domain().migrateSetMaxDowntime(milliseconds)

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
