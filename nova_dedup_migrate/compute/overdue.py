# SPDX-License-Identifier: Apache-2.0
"""Live migrations that nobody is at any more, while nova-compute runs.

One answer that gets lost with a RabbitMQ that is started again is enough:
Nova's manager gives up on its first step, and the instance stays migrating
for ever.  A request may be lost as well before the manager has it.

So it is looked regularly which instances of this host migrate.  One that
neither Nova nor we have in hand, and whose migration has not got on between
two looks that are far enough apart, is settled like those that a
nova-compute that ended has left (stranded.py).
"""

import threading
import time

from nova import context as nova_context
from nova import objects
from nova.compute import task_states
import nova.conf
from oslo_log import log as logging

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds between two looks.
LOOK_S = 30.0
#: Seconds without progress after which nothing comes any more: a step of
#: Nova's for which we have no attempt yet is one call, which times out
#: after 60.
PATIENCE_S = 90.0
#: Statuses in which Nova may ask the destination to do something, and waits
#: as long as its long_rpc_timeout allows.
_LONG = ('accepted', 'preparing')


class Overdue:
    """Looks in a thread of its own.

    :param host: name of this host
    :param in_hand: callable(instance UUID) -> whether somebody is at it
    :param newest: callable(context, instance UUID) -> nova.objects.Migration
        that may be lost, or None
    :param settle: callable(nova.objects.Migration); returns at once
    """

    def __init__(self, host, in_hand, newest, settle):
        self._host = host
        self._in_hand = in_hand
        self._newest = newest
        self._settle = settle
        # UUID of an instance -> ((migration, its status), since when)
        self._seen = {}
        self._stopping = threading.Event()

    def start(self):
        """Look from now on."""
        threading.Thread(target=self._run, daemon=True,
                         name='dedup-overdue').start()

    def stop(self):
        """Begin nothing more."""
        self._stopping.set()

    def _run(self):
        while not self._stopping.wait(LOOK_S):
            try:
                self.look(time.monotonic())
            except Exception as error:
                LOG.warning('Migrations that nobody is at any more were not '
                            'looked for: %s', error)

    def look(self, now):
        """Settle what has not got on.

        :param now: monotonic time, seconds
        """
        context = nova_context.get_admin_context()
        before, self._seen = self._seen, {}
        for instance in objects.InstanceList.get_by_filters(
                context, {'host': self._host, 'deleted': False,
                          'task_state': task_states.MIGRATING},
                expected_attrs=[]):
            if self._in_hand(instance.uuid):
                continue
            migration = self._newest(context, instance.uuid)
            if migration is None:
                continue
            state = migration.id, migration.status
            seen, since = before.get(instance.uuid, (None, None))
            if seen != state:
                since = now
            if now - since < self._patience(migration):
                self._seen[instance.uuid] = state, since
                continue
            LOG.warning('Nobody is at live migration %(uuid)s any more, '
                        'which is %(status)s',
                        {'uuid': migration.uuid,
                         'status': migration.status}, instance=instance)
            self._settle(migration)

    @staticmethod
    def _patience(migration):
        return (CONF.long_rpc_timeout + PATIENCE_S
                if migration.status in _LONG else PATIENCE_S)
