# SPDX-License-Identifier: Apache-2.0
"""Asking a guest what it caches, and telling its QEMU.

::

    guest's lister  --listing-->  parser
    QEMU's objects  --devices-->  identity    which disk is which
                                  convert
    QEMU            <---map-----  memfd, getfd, x-dedup-load-map

Nothing here raises for what the guest does: it ends in an Answer, within
the time that was given.
"""

import dataclasses
import os
import time

from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import convert
from nova_dedup_migrate.pagecache import devices
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import identity
from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.pagecache import transport

#: Too little time to begin anything.
_NO_TIME_S = 0.2
#: Of the time, what is kept for QEMU to read the map.
_LOADING_SHARE = 0.2
_LOOK_S = 0.02


class Asker:
    """Asks one guest.

    :param guest: hypervisor.base.Guest
    :param ways: transport.Transport, the preferred one first
    :param limits: transport.Limits
    """

    def __init__(self, guest, ways, limits):
        self._guest = guest
        self._ways = ways
        self._limits = limits

    def obstacle(self):
        """Return why the guest cannot be asked, '' if it can."""
        if self._guest.run_state() != 'running':
            return 'it does not run'
        reasons = []
        for way in self._ways:
            reason = way.obstacle()
            if not reason:
                return ''
            reasons.append(reason)
        return '; '.join(reasons) or 'no way is allowed'

    def ask(self, usable=None):
        """Return an answer.Answer.

        :param usable: devices whose pages are of use, None for all
        :raises HypervisorError: QEMU, not the guest, has failed
        """
        begun = time.monotonic()
        deadline = begun + self._limits.seconds
        made = self._ask(usable, deadline)
        return dataclasses.replace(made, seconds=time.monotonic() - begun)

    def _ask(self, usable, deadline):
        way, parser, outcome, reason = self._listing(
            deadline - self._limits.seconds * _LOADING_SHARE)
        if parser is None:
            return answer.Answer(outcome, reason, way)
        found = answer.figures(parser)
        if reason:
            outcome = answer.PARTIAL
        elif found['status'] not in ('', 'whole'):
            outcome, reason = answer.PARTIAL, found['status']
        ids, unknown = self._identify(parser, usable)
        found['notes'] += tuple(unknown.values())
        made = convert.Converted(parser, ids)
        if not made.pages:
            return answer.Answer(
                answer.REFUSED if parser.extents and not ids else outcome,
                reason or 'it lists nothing that is of use', way, **found)
        try:
            found['taken_pages'], whole = self._load(made, deadline)
            if not whole:
                outcome, reason = answer.PARTIAL, 'QEMU still reads it'
        except (errors.NotTaken, mapformat.MapError) as error:
            return answer.Answer(answer.REFUSED, str(error), way, **found)
        return answer.Answer(outcome, reason, way, **found)

    def _listing(self, deadline):
        """Return (way, parser or None, outcome, reason)."""
        way, outcome, reasons = '', answer.UNAVAILABLE, []
        for one in self._ways:
            if transport.left(deadline) < _NO_TIME_S:
                break
            reason = one.obstacle()
            if reason:
                reasons.append(reason)
                continue
            try:
                parser = one.ask(self._limits, deadline)
            except errors.NoWay as error:
                reasons.append(str(error))
            except errors.NoAnswer as error:
                way, outcome = one.name, answer.TIMEOUT
                reasons.append(str(error))
            except errors.ListingError as error:
                way, outcome = one.name, answer.REFUSED
                reasons.append(str(error))
            else:
                return one.name, parser, answer.TAKEN, (
                    '' if parser.complete else 'the guest broke off, or '
                    'was too slow')
        return way, None, outcome, '; '.join(reasons) or 'no way is allowed'

    def _identify(self, parser, usable):
        ids, unknown = identity.match(parser.disks,
                                      devices.find(self._guest))
        if usable is not None:
            ids = {index: name for index, name in ids.items()
                   if name in usable}
        return ids, unknown

    def _load(self, made, deadline):
        """Give QEMU the map; return how many pages it took, and if all.

        It reads some hundred thousand extents in a second.
        """
        fd = made.to_memfd()
        try:
            self._guest.load_dedup_map(fd)
        except hypervisor_errors.QmpError as error:
            raise errors.NotTaken(reason=error.description) from error
        finally:
            os.close(fd)
        while True:
            hints = self._guest.dedup_statistics().hints
            if hints.map_state == 'failed':
                raise errors.NotTaken(reason=hints.map_error or 'no reason')
            if hints.map_state != 'loading':
                return hints.map_pages, True
            if not transport.left(deadline):
                return min(hints.pages, made.pages), False
            time.sleep(_LOOK_S)
