# SPDX-License-Identifier: Apache-2.0
"""Nova's libvirt driver with dedup migration.

nova.conf: ``compute_driver = dedup_migrate.DedupMigrateLibvirtDriver``

What is overridden, and what of Nova's private API is called, is listed in
doc/source/contributor/driver.rst; tests/unit/compute/test_signatures.py
compares it with the Nova that is installed.

With ``[dedup_migrate] enabled = false`` each override is Nova's own method
and nothing else.
"""

import contextlib
import functools
import threading

import libvirt
from nova import exception
from nova.virt.libvirt import driver
from oslo_concurrency import lockutils
from oslo_log import log as logging

from nova_dedup_migrate.compute import destination
from nova_dedup_migrate.compute import migrations
from nova_dedup_migrate.compute import monitored_guest
from nova_dedup_migrate.compute import page_cache
from nova_dedup_migrate.compute import volume_swaps
from nova_dedup_migrate.operations import operation as operations

LOG = logging.getLogger(__name__)


class DedupMigrateLibvirtDriver(driver.LibvirtDriver):
    """LibvirtDriver whose live migrations leave out what storage holds."""

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        # If libvirt turns out to be gone while Nova holds this lock, the
        # close callback runs in the same thread and takes it once more.
        self._host._wrapped_conn_lock = threading.RLock()
        self._preparing = lockutils.Semaphores()
        self.dedup = migrations.LiveMigrations(self)
        self.volumes = volume_swaps.VolumeSwaps(self)

    def init_host(self, host):
        super().init_host(host)
        self.dedup.start(host)
        self.volumes.start()

    def process_instances_at_startup(self, context, instances):
        """Keep those that recovery settles from Nova's start-up."""
        instances = super().process_instances_at_startup(context, instances)
        return self.dedup.take_over(context, instances)

    def cleanup_host(self, host):
        self.dedup.stop()
        self.volumes.stop()
        super().cleanup_host(host)

    def _handle_conn_event(self, enabled, reason):
        """Do not disable the host for a connection that was replaced.

        libvirt may report the end of one after the next one was made, and
        nothing would enable the host again.
        """
        if enabled or self._host._wrapped_conn is None:
            super()._handle_conn_event(enabled, reason)

    def _set_qemu_guest_agent(self, guest, flavor, instance, image_meta):
        """Add the port over which the guest lists its page cache."""
        super()._set_qemu_guest_agent(guest, flavor, instance, image_meta)
        if self.dedup.enabled:
            page_cache.add_port(guest, instance)

    def emit_event(self, event):
        """See a guest start, resume or arrive."""
        self.dedup.see_event(event)
        super().emit_event(event)

    # The destination

    def pre_live_migration(self, context, instance, *args, **kwargs):
        """Prepare nothing for a migration that was rolled back meanwhile."""
        if not self.dedup.enabled:
            return super().pre_live_migration(context, instance, *args,
                                              **kwargs)
        with destination.preparing(instance, self._preparing):
            self.dedup.require_wanted(context, instance)
            result = super().pre_live_migration(context, instance, *args,
                                                **kwargs)
            self.dedup.require_wanted(context, instance)
            return result

    def rollback_live_migration_at_destination(self, context, instance,
                                               *args, **kwargs):
        """Roll back when the preparation has ended, and no guest runs.

        Waits for a libvirtd that has just ended: the source does not send
        the request a second time.
        """
        settle = super().rollback_live_migration_at_destination
        if not self.dedup.enabled:
            return settle(context, instance, *args, **kwargs)

        def roll_back():
            destination.require_no_guest(self._host, instance)
            return settle(context, instance, *args, **kwargs)

        with destination.preparing(instance, self._preparing):
            return self.dedup.with_libvirt(instance, roll_back)

    def post_live_migration_at_destination(self, context, instance, *args,
                                           **kwargs):
        """Wait for a libvirtd that has just ended.

        Nova would set ERROR on an instance that has arrived and runs.
        """
        settle = super().post_live_migration_at_destination
        if self.dedup.enabled:
            return self.dedup.with_libvirt(
                instance, settle, context, instance, *args, **kwargs)
        return settle(context, instance, *args, **kwargs)

    # The source

    def check_can_live_migrate_source(self, context, instance, *args,
                                      **kwargs):
        """Keep what was agreed to, so that it can be rolled back.

        Nova would let a live migration begin while a volume is swapped;
        the swap would then fail after all was copied.
        """
        if self.dedup.enabled:
            self.volumes.require_no_swap(instance)
        data = super().check_can_live_migrate_source(context, instance,
                                                     *args, **kwargs)
        if self.dedup.enabled:
            self.dedup.request(context, instance, data)
        return data

    def swap_volume(self, context, old_connection_info, new_connection_info,
                    instance, mountpoint, resize_to):
        """Write what is swapped before anything else is done."""
        swap = super().swap_volume
        if not self.dedup.enabled:
            return swap(context, old_connection_info, new_connection_info,
                        instance, mountpoint, resize_to)
        with self.volumes.swapping(instance, mountpoint, old_connection_info,
                                   new_connection_info):
            return swap(context, old_connection_info, new_connection_info,
                        instance, mountpoint, resize_to)

    def _swap_volume(self, guest, disk_dev, conf, *args, **kwargs):
        """Fill the new volume from a backup before Nova copies.

        Nova gets a guest that keeps the record of the swap.
        """
        swap = super()._swap_volume
        if not self.dedup.enabled:
            return swap(guest, disk_dev, conf, *args, **kwargs)
        with self.volumes.filling(guest, disk_dev, conf) as guest:
            return swap(guest, disk_dev, conf, *args, **kwargs)

    # What needs QEMU's disks for itself, or its only NBD server

    def detach_volume(self, context, connection_info, instance, *args,
                      **kwargs):
        """Detach it when it is not read any more."""
        with _unread(self, instance):
            return super().detach_volume(context, connection_info, instance,
                                         *args, **kwargs)

    def extend_volume(self, context, connection_info, instance, *args,
                      **kwargs):
        """Extend it when it is not read any more."""
        with _unread(self, instance):
            return super().extend_volume(context, connection_info, instance,
                                         *args, **kwargs)

    def volume_snapshot_create(self, context, instance, *args, **kwargs):
        """Make it when the volume is not read any more."""
        with _unread(self, instance):
            return super().volume_snapshot_create(context, instance, *args,
                                                  **kwargs)

    def volume_snapshot_delete(self, context, instance, *args, **kwargs):
        """Delete it when the volume is not read any more."""
        with _unread(self, instance):
            return super().volume_snapshot_delete(context, instance, *args,
                                                  **kwargs)

    def snapshot(self, context, instance, *args, **kwargs):
        """Make it when the volumes are not read any more."""
        with _unread(self, instance):
            return super().snapshot(context, instance, *args, **kwargs)

    def suspend(self, context, instance, *args, **kwargs):
        """Suspend it when its volumes are not read any more."""
        with _unread(self, instance):
            return super().suspend(context, instance, *args, **kwargs)

    def _live_migration(self, context, instance, dest, post_method,
                        recover_method, block_migration, migrate_data):
        """Run Nova's own as one task of our flow."""
        live_migration = super()._live_migration
        if not self.dedup.enabled:
            return live_migration(context, instance, dest, post_method,
                                  recover_method, block_migration,
                                  migrate_data)
        with (self.volumes.unread(instance),
              self.dedup.session(context, instance, dest, post_method,
                                 recover_method, block_migration,
                                 migrate_data) as session):
            if session is None:
                return None

            def operate():
                if not session.begin():
                    return session.recover(context, instance, dest,
                                           migrate_data)
                return live_migration(context, instance, dest,
                                      session.complete, session.recover,
                                      block_migration, migrate_data)

            return self.dedup.migrate(context, instance, session,
                                      migrate_data, operate)

    def _live_migration_operation(self, context, instance, *args, **kwargs):
        """Leave an error of libvirt to Nova's monitor.

        The monitor looks at the guest, completes or rolls back, and that
        settles it.  Nova raises the error once more after that, and the
        manager then sets ERROR on an instance that runs.
        """
        session = self.dedup.session_of(instance)
        if session is None:
            return super()._live_migration_operation(context, instance,
                                                     *args, **kwargs)
        if not session.call():
            return None
        try:
            return super()._live_migration_operation(context, instance,
                                                     *args, **kwargs)
        except libvirt.libvirtError as error:
            # Nova has logged it.
            return session.operation_failed(error)
        except Exception as error:
            # Nova may not even have called libvirt: a guest that is gone
            # has not arrived for that.
            session.operation_failed(error)
            raise
        finally:
            session.operation_ended()

    def _live_migration_monitor(self, context, instance, guest, dest,
                                post_method, recover_method, block_migration,
                                migrate_data, *args, **kwargs):
        """Show Nova's monitor what it can go on with.

        A guest that counts fetched pages and outlives libvirtd, and
        records whose figures may be lost.
        """
        session = self.dedup.session_of(instance)
        if session is not None:
            guest = monitored_guest.MonitoredGuest(
                guest, session,
                functools.partial(self._host.get_guest, instance))
            instance = monitored_guest.MonitoredRecord(instance)
            migrate_data = monitored_guest.MonitoredData(migrate_data)
        return super()._live_migration_monitor(
            context, instance, guest, dest, post_method, recover_method,
            block_migration, migrate_data, *args, **kwargs)

    def live_migration_abort(self, instance):
        """Defer the request if libvirt has no migration to abort yet."""
        session = self.dedup.session_of(instance)
        if session is not None and not session.begun:
            if session.defer(operations.ABORT):
                return
        try:
            super().live_migration_abort(instance)
        except libvirt.libvirtError:
            if session is None or not session.defer(operations.ABORT):
                raise

    def live_migration_force_complete(self, instance):
        """Defer the request if Nova has no monitor to take it yet."""
        session = self.dedup.session_of(instance)
        try:
            super().live_migration_force_complete(instance)
        except exception.NoActiveMigrationForInstance:
            if session is None or not session.defer(
                    operations.FORCE_COMPLETE):
                raise


def _unread(driver, instance):
    """Have the volumes of an instance not read while a block runs."""
    if not driver.dedup.enabled:
        return contextlib.nullcontext()
    return driver.volumes.unread(instance)
