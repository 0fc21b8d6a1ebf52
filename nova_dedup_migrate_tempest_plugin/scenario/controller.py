# SPDX-License-Identifier: Apache-2.0
"""What the tests of the controller share."""

import time

from tempest import config
from tempest.lib import exceptions

from nova_dedup_migrate_tempest_plugin.scenario import base

CONF = config.CONF


class ControllerScenario(base.DedupMigrateScenario):
    """A cloud that has the controller."""

    credentials = ['primary', 'admin', 'alt']

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.dedup_migrate.controller:
            raise cls.skipException('[dedup_migrate] controller is off')

    @classmethod
    def setup_clients(cls):
        super().setup_clients()
        cls.controller = cls.os_admin.dedup_migrate.ControllerClient()
        cls.member = cls.os_primary.dedup_migrate.ControllerClient()
        cls.stranger = cls.os_alt.dedup_migrate.ControllerClient()

    def wait_for(self, what, show, states, timeout=None):
        """Wait until what a function shows has one of some states.

        :param what: in words, for errors
        :param show: returns an object with "state"
        :returns: that object
        :raises TimeoutException: it has not within timeout seconds, by
            default [dedup_migrate] timeout
        """
        deadline = time.monotonic() + (
            timeout or CONF.dedup_migrate.timeout)
        while (found := show())['state'] not in states:
            if time.monotonic() > deadline:
                raise exceptions.TimeoutException(
                    '%s is not %s, but %s' % (what, ' or '.join(states),
                                              found))
            time.sleep(CONF.compute.build_interval)
        return found

    def reported(self, server, number=1):
        """Wait until the controller knows a server's last migration.

        :param number: how many there were
        :returns: the migration, which has ended
        """
        def newest():
            found = self.controller.list_migrations(server['id'])
            if len(found) < number:
                return {'state': 'one of only %d' % len(found)}
            return found[0]

        return self.wait_for('the live migration of %s' % server['id'],
                             newest, ('completed', 'failed', 'cancelled'))
