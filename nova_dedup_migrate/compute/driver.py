# SPDX-License-Identifier: Apache-2.0
"""Nova's libvirt driver with dedup migration.

nova.conf: ``compute_driver = dedup_migrate.DedupMigrateLibvirtDriver``

What is overridden, and what of Nova's private API is called, is listed in
doc/source/contributor/driver.rst; tests/unit/compute/test_signatures.py
compares it with the Nova that is installed.
"""

import functools
import threading

import libvirt
from nova import exception
from nova.virt.libvirt import driver
from oslo_log import log as logging
import oslo_messaging

from nova_dedup_migrate.compute import figures
from nova_dedup_migrate.compute import page_cache
from nova_dedup_migrate.compute import service

LOG = logging.getLogger(__name__)


class DedupMigrateLibvirtDriver(driver.LibvirtDriver):
    """LibvirtDriver whose live migrations leave out what storage holds."""

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        # Where libvirt turns out to be gone while Nova holds this lock, the
        # same thread is told so, and wants it once more.
        self._host._wrapped_conn_lock = threading.RLock()
        self.dedup = service.DedupMigrate(self)

    def init_host(self, host):
        super().init_host(host)
        self.dedup.start(host)

    def process_instances_at_startup(self, context, instances):
        """Take those whose migration was interrupted out of Nova's hands."""
        instances = super().process_instances_at_startup(context, instances)
        return self.dedup.take_over(context, instances)

    def cleanup_host(self, host):
        self.dedup.stop()
        super().cleanup_host(host)

    def _handle_conn_event(self, enabled, reason):
        """Do not disable the host for a connection that was replaced.

        libvirt may tell that one has ended after the next one was made,
        and nothing would enable the host again.
        """
        if enabled or self._host._wrapped_conn is None:
            super()._handle_conn_event(enabled, reason)

    def _set_qemu_guest_agent(self, guest, flavor, instance, image_meta):
        """Add the port over which the guest says what it caches."""
        super()._set_qemu_guest_agent(guest, flavor, instance, image_meta)
        page_cache.add_port(guest, instance)

    def emit_event(self, event):
        """See a guest start, resume or arrive."""
        self.dedup.see_event(event)
        super().emit_event(event)

    def check_can_live_migrate_destination(self, context, instance, *args,
                                           **kwargs):
        """Answer when nothing is being prepared for the instance here.

        What is asked once more after a migration was lost may be rolled
        back by the answer (prepared.py); an image may still be fetched.
        """
        with self.dedup.preparing(instance):
            return super().check_can_live_migrate_destination(
                context, instance, *args, **kwargs)

    def pre_live_migration(self, context, instance, *args, **kwargs):
        """Make nothing for a migration that was rolled back meanwhile."""
        with self.dedup.preparing(instance):
            if not self.dedup.is_wanted(context, instance):
                raise exception.MigrationError(
                    reason='it is not to migrate here any more')
            return super().pre_live_migration(context, instance, *args,
                                              **kwargs)

    def post_live_migration_at_destination(self, context, instance, *args,
                                           **kwargs):
        """Wait for a libvirtd that has just ended.

        Nova would set ERROR on an instance that has arrived and runs.
        """
        self.dedup.await_libvirt(instance)
        return super().post_live_migration_at_destination(
            context, instance, *args, **kwargs)

    def _live_migration(self, context, instance, dest, post_method,
                        recover_method, block_migration, migrate_data):
        """Run Nova's own as one task of our flow."""
        if self.dedup.refuses(context, instance, dest, recover_method,
                              migrate_data):
            return
        with self.dedup.attempt(instance, dest, block_migration,
                                migrate_data) as attempt:
            recover = attempt.recovering(recover_method)
            post = attempt.completing(post_method, recover)

            def operate():
                self.dedup.await_libvirt(instance)
                if not attempt.begin():
                    return recover(context, instance, dest, migrate_data)
                try:
                    live_migration(context, instance, dest, post, recover,
                                   block_migration, migrate_data)
                except Exception as error:
                    if not attempt.give_up(error):
                        raise
                    recover(context, instance, dest, migrate_data)

            live_migration = super()._live_migration
            self.dedup.migrate(context, instance, migrate_data, attempt,
                               operate)

    def _live_migration_operation(self, context, instance, *args, **kwargs):
        """Leave it to Nova's monitor what an error of libvirt means.

        The monitor looks at the guest, completes or rolls back, and that
        settles it.  Since 34.0.0 Nova raises the error once more after
        that, and the manager then sets ERROR on an instance that runs.
        """
        attempt = self.dedup.attempt_of(instance)
        if attempt is not None and not attempt.enter():
            return
        try:
            super()._live_migration_operation(context, instance, *args,
                                              **kwargs)
        except libvirt.libvirtError as error:
            if attempt is None:
                raise
            # Nova has logged it.
            attempt.operation_failed(error)
        finally:
            if attempt is not None:
                attempt.operation_ended()

    def _live_migration_monitor(self, context, instance, guest, *args,
                                **kwargs):
        """Show Nova's monitor a guest that counts fetched pages.

        It also outlives a libvirtd that is started again.  The monitor
        saves figures now and then, and where it cannot, Nova gives up: but
        the guest may leave all the same, and the instance would be ERROR
        here and run there.  So it is begun again.
        """
        attempt = self.dedup.attempt_of(instance)
        if attempt is not None:
            guest = figures.MigratingGuest(
                guest, attempt,
                functools.partial(self._host.get_guest, instance))
        while True:
            try:
                return super()._live_migration_monitor(
                    context, instance, guest, *args, **kwargs)
            except oslo_messaging.MessagingException as error:
                if attempt is None or not attempt.goes_on(error):
                    raise

    def live_migration_abort(self, instance):
        """Keep the request where libvirt has no migration to abort yet."""
        attempt = self.dedup.attempt_of(instance)
        if attempt is not None and not attempt.begun:
            if attempt.wish('abort'):
                return
        try:
            super().live_migration_abort(instance)
        except libvirt.libvirtError:
            if attempt is None or not attempt.wish('abort'):
                raise

    def live_migration_force_complete(self, instance):
        """Keep the request where Nova has no monitor to take it yet."""
        attempt = self.dedup.attempt_of(instance)
        try:
            super().live_migration_force_complete(instance)
        except exception.NoActiveMigrationForInstance:
            if attempt is None or not attempt.wish('force-complete'):
                raise
