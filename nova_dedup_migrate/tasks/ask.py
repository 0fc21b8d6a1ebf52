# SPDX-License-Identifier: Apache-2.0
"""Asking the guest what it caches, before the plan is made."""

import dataclasses

from oslo_log import log as logging

from nova_dedup_migrate import deadline
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.tasks import base

LOG = logging.getLogger(__name__)

#: Seconds beyond the asker's own limit after which it is left behind.
_SLACK_S = 1.0
#: Questions that may hang, of all migrations of this process.
_RUNNER = deadline.Runner('the guest', 16)


class AskGuest(base.Task):
    """Add what the guest lists to the hints of its QEMU.

    Provides facts: the gathered ones, with what QEMU knows now.  The
    revert makes QEMU forget it.

    :param guest: hypervisor.base.Guest at the source
    :param asker: pagecache.ask.Asker, None to ask nothing
    :param limit: seconds it may take
    """

    default_provides = 'facts'

    def __init__(self, record, guest, asker, limit):
        super().__init__(record)
        self._guest = guest
        self._asker = asker
        self._limit = limit

    def execute(self, gathered):
        if gathered is None:
            return None
        found = self._ask(gathered)
        self.record.page_cache = found
        LOG.debug('Page cache of instance %(instance)s: %(found)s',
                  {'instance': self.record.instance_uuid, 'found': found})
        guest = dataclasses.replace(
            gathered.guest, map_pages=0,
            map_reason=found.reason or 'the guest lists nothing')
        if found.useful and found.taken_pages:
            guest = self._known(guest, found)
        facts = dataclasses.replace(gathered, guest=guest)
        self.record.facts = facts
        return facts

    def _ask(self, gathered):
        """Return an answer.Answer; nothing is raised."""
        if self._asker is None:
            return answer.Answer(answer.NOT_ASKED, 'switched off')
        try:
            reason = asking.obstacle(gathered)
            if reason:
                return answer.Answer(answer.NOT_ASKED, reason)
            return _RUNNER.run(self._limit + _SLACK_S, self._asked,
                               asking.usable(gathered))
        except deadline.Late as error:
            return answer.Answer(answer.TIMEOUT, str(error),
                                 seconds=self._limit)
        except Exception as error:
            self.record.warn('asking the guest what it caches', error)
            return answer.Answer(answer.REFUSED, str(error))

    def _asked(self, usable):
        reason = self._asker.obstacle()
        if reason:
            return answer.Answer(answer.UNAVAILABLE, reason)
        return self._asker.ask(usable)

    def _known(self, guest, found):
        try:
            pages = self._guest.dedup_statistics().hints.pages
        except errors.HypervisorError as error:
            self.record.warn('counting hints', error)
            pages = max(guest.hint_pages, found.taken_pages)
        return dataclasses.replace(guest, hint_pages=pages,
                                   map_pages=found.taken_pages)

    def revert(self, **kwargs):
        forget(self.record, self._guest)


class ForgetAnswer(base.Task):
    """See to it that a guest that stayed keeps no table it does not need.

    There is no way back: what it says is old by the next migration.
    """

    def __init__(self, record, guest):
        super().__init__(record)
        self._guest = guest

    def execute(self):
        if self.record.outcome != 'completed':
            forget(self.record, self._guest)

    def revert(self, **kwargs):
        """See the class."""


def forget(record, guest):
    """Free the hints of a guest whose I/O is not recorded.

    Where it is recorded, newer hints take the place of older ones.
    """
    found = record.page_cache
    if found is None or not found.useful:
        return
    try:
        if not guest.dedup_statistics().tracking:
            guest.track_dedup(False)
    except (errors.QmpDisconnected, errors.GuestNotRunning):
        # Whoever is gone keeps nothing.
        return
    except Exception as error:
        record.warn('forgetting what the guest caches', error)
