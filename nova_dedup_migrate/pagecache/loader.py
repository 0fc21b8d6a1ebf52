# SPDX-License-Identifier: Apache-2.0
"""Loading the page-cache listing of a guest into its QEMU.

::

    guest's lister  --listing-->  parser
    QEMU's objects  --devices-->  identity    which disk is which
                                  convert
    QEMU            <---map-----  memfd, getfd, x-dedup-load-map

The guest cannot cause an error here: whatever it sends, the result is an
Answer, within the time limit.  Only errors of QEMU are raised.
"""

from collections.abc import Container
from collections.abc import Sequence
import dataclasses
import os
import time

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import convert
from nova_dedup_migrate.pagecache import devices
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import identity
from nova_dedup_migrate.pagecache import parser as listing_parser
from nova_dedup_migrate.pagecache import transport

#: With fewer seconds left no request is sent.
_MINIMUM_S = 0.2
#: The part of the time limit that is kept for QEMU to read the map.
_LOADING_SHARE = 0.2
_POLL_S = 0.02
_NO_TRANSPORT = 'page_cache_transports of [dedup_migrate] is empty'


class PageCacheLoader:
    """Loads the listing of one guest.

    :param guest: hypervisor.base.Guest
    :param transports: transport.Transport, in the order of preference
    :param limits: transport.Limits
    """

    def __init__(self, guest: hypervisor.Guest,
                 transports: Sequence[transport.Transport],
                 limits: transport.Limits) -> None:
        self._guest = guest
        self._transports = transports
        self._limits = limits

    def obstacle(self) -> str:
        """Return why no request can be sent, '' if one can."""
        if self._guest.run_state() != 'running':
            return 'the guest is not running'
        reasons = []
        for one in self._transports:
            reason = one.obstacle()
            if not reason:
                return ''
            reasons.append(reason)
        return '; '.join(reasons) or _NO_TRANSPORT

    def load(self, usable: Container[str] | None = None,
             seconds: float | None = None) -> answer.Answer:
        """Request the listing, pass it to QEMU; return an answer.Answer.

        :param usable: devices whose pages the destination can read, None
            for all
        :param seconds: until QEMU has read it, None for that of the limits
        :raises HypervisorError: a command of QEMU failed
        """
        begun = time.monotonic()
        limit = self._limits.seconds if seconds is None else seconds
        made = self._load(usable, begun + limit, limit * _LOADING_SHARE)
        return dataclasses.replace(made, seconds=time.monotonic() - begun)

    def _load(self, usable: Container[str] | None, deadline: float,
              loading: float) -> answer.Answer:
        """:param loading: seconds before the deadline for QEMU"""
        name, parser, outcome, reason = self._listing(deadline - loading)
        if parser is None:
            return answer.Answer(outcome, reason, name)
        found = answer.figures(parser)
        if reason:
            outcome = answer.PARTIAL
        elif found['status'] not in ('', 'whole'):
            outcome, reason = answer.PARTIAL, found['status']
        ids, unknown = self._identify(parser, usable)
        found['notes'] += tuple(unknown.values())
        try:
            made = convert.Converted(parser, ids, deadline)
            if not made.pages:
                return answer.Answer(
                    answer.REFUSED if parser.extents and not ids else
                    outcome, reason or 'the listing has no pages of disks '
                    'that the destination can read', name, **found)
            found['taken_pages'], whole = self._pass_to_qemu(made, deadline)
            if not whole:
                outcome, reason = (answer.PARTIAL,
                                   'QEMU is still reading the map')
        except errors.NoAnswer as error:
            return answer.Answer(answer.TIMEOUT, str(error), name, **found)
        except (errors.MapRejected, errors.MapError) as error:
            return answer.Answer(answer.REFUSED, str(error), name, **found)
        return answer.Answer(outcome, reason, name, **found)

    def _listing(self, deadline: float) -> tuple[
            str, listing_parser.ListingParser | None, str, str]:
        """Return (transport name, parser or None, outcome, reason)."""
        name, outcome, reasons = '', answer.UNAVAILABLE, []
        for one in self._transports:
            if transport.left(deadline) < _MINIMUM_S:
                reasons.append('no time was left for transport %s; see '
                               'page_cache_time' % one.name)
                break
            reason = one.obstacle()
            if reason:
                reasons.append(reason)
                continue
            try:
                parser = one.request(self._limits, deadline)
            except errors.GuestUnreachable as error:
                reasons.append(str(error))
            except errors.NoAnswer as error:
                name, outcome = one.name, answer.TIMEOUT
                reasons.append(str(error))
            except errors.ListingError as error:
                name, outcome = one.name, answer.REFUSED
                reasons.append(str(error))
            else:
                return one.name, parser, answer.TAKEN, (
                    '' if parser.complete else 'the listing is cut off: the '
                    'guest closed the connection or the time limit was '
                    'reached')
        return name, None, outcome, '; '.join(reasons) or _NO_TRANSPORT

    def _identify(self, parser: listing_parser.ListingParser,
                  usable: Container[str] | None
                  ) -> tuple[dict[int, str], dict[int, str]]:
        ids, unknown = identity.match(parser.disks,
                                      devices.find(self._guest))
        if usable is not None:
            ids = {index: name for index, name in ids.items()
                   if name in usable}
        return ids, unknown

    def _pass_to_qemu(self, made: convert.Converted,
                      deadline: float) -> tuple[int, bool]:
        """Return (pages in QEMU's table, whether it read the whole map).

        :raises NoAnswer: the deadline passed before QEMU has it
        """
        fd = made.to_memfd()
        try:
            if not transport.left(deadline):
                raise errors.NoAnswer(
                    reason='the time limit was reached when %d extents had '
                    'been converted; see page_cache_time' % made.extents)
            self._guest.load_dedup_map(fd)
        except hypervisor_errors.QmpError as error:
            raise errors.MapRejected(reason=error.description) from error
        finally:
            os.close(fd)
        while True:
            hints = self._guest.dedup_statistics().hints
            if hints.map_state == 'failed':
                raise errors.MapRejected(
                    reason=hints.map_error or 'map-error is empty')
            if hints.map_state != 'loading':
                return hints.map_pages, True
            if not transport.left(deadline):
                return min(hints.pages, made.pages), False
            time.sleep(_POLL_S)
