# SPDX-License-Identifier: Apache-2.0
"""What the source of a migration knows about it, ready when it begins.

Samples of guests and rates of links are made in the background and kept;
a request is answered from them, or measures what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
import concurrent.futures
import logging
import random
import threading
import time
from typing import Any

from nova_dedup_migrate import deadline
from nova_dedup_migrate.agent import guest_samples
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.agent import working_sets
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.identity import answer
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import survey_objects

LOG = logging.getLogger(__name__)

#: Seconds an answer may take, however long the caller would wait.
MAX_BUDGET = 60.0
#: Sweeps are apart by the interval times one of these.
_JITTER = (0.75, 1.25)
_LINKS = deadline.Runner('the agent of the destination', 16)


class Surveys:
    """Answers, and sweeps in the background.

    :param samples: guest_samples.GuestSamples
    :param links: link_rates.LinkRates
    :param interval: seconds between sweeps, 0 for none
    :param enabled: whether the host takes part
    """

    def __init__(self, samples: guest_samples.GuestSamples,
                 links: link_rates.LinkRates, interval: float,
                 enabled: bool = True) -> None:
        self._samples = samples
        self._links = links
        self._interval = interval
        self._enabled = enabled
        self._stopping = threading.Event()
        # A working set takes a minute, for which no sample may wait.
        self._threads = [
            threading.Thread(target=self._run, args=(what,), daemon=True,
                             name='dedup-surveys')
            for what in (self._sweep, self._measure)]

    def start(self) -> None:
        """Begin to sweep."""
        if self._enabled and self._interval:
            for thread in self._threads:
                thread.start()

    def stop(self) -> None:
        """Sample no further guest; one that is under way is left behind."""
        self._stopping.set()

    def reply(self, ctxt: Any, request: survey_objects.DedupSurveyRequest
              ) -> survey_objects.DedupSurveyReply:
        """Return a DedupSurveyReply within the budget of the request."""
        if not self._enabled:
            return survey_objects.DedupSurveyReply(
                known=False,
                reason='[dedup_migrate] enabled is off on the source')
        patience = min(request.budget, MAX_BUDGET)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            link = pool.submit(self._link, ctxt, request.destination,
                               patience)
            sample, reason = self._samples.sample(
                request.instance_uuid, request.max_age, patience)
            fields = self._link_fields(link.result())
        if sample is None:
            return survey_objects.DedupSurveyReply(
                known=False, reason=answer.cut(reason), **fields)
        return survey_objects.DedupSurveyReply(
            known=True, **fields, **_figures(
                sample, self._samples.windows(request.instance_uuid)))

    def _link(self, ctxt: Any, host: str | None, patience: float
              ) -> link_rates.LinkRate:
        if host is None:
            return link_rates.LinkRate(None, None)
        try:
            return _LINKS.run(patience, self._links.rate, ctxt, host,
                              patience)
        except deadline.Late as error:
            return self._links.last(host, str(error))

    @staticmethod
    def _link_fields(link: link_rates.LinkRate) -> dict[str, Any]:
        return {'link_rate': link.rate, 'link_age': link.age,
                'link_reason': answer.cut(link.reason)}

    def _sweep(self) -> None:
        self._samples.sweep(self._stopping.is_set)
        self._links.refresh({})

    def _measure(self) -> None:
        working_sets.measure(self._samples, self._stopping)

    def _run(self, what: Callable[[], None]) -> None:
        pause = random.uniform(0, self._interval)
        while not self._stopping.wait(pause):
            try:
                what()
            except errors.HypervisorError as error:
                LOG.debug('The guests of this host are not sampled: %s',
                          error)
            except Exception:
                LOG.exception('Sampling the guests of this host failed; it '
                              'is tried again in %g s', self._interval)
            pause = self._interval * random.uniform(*_JITTER)


def _figures(sample: guest_samples.Sample,
             windows: tuple[working_set.Window, ...]) -> dict[str, Any]:
    """Return the fields of a DedupSurveyReply for a sample."""
    found = sample.found
    result: dict[str, Any] = {
        'age': time.monotonic() - sample.taken,
        'dirty_rate': found.dirty_rate,
        'disk_write_rate': found.disk_write_rate}
    if found.in_use is not None:
        result.update(in_use=found.in_use.bytes,
                      in_use_error=found.in_use.error)
    if found.hints is not None:
        result.update(hint_pages=found.hints.pages,
                      map_pages=found.hints.map_pages)
    result['windows'] = [
        survey_objects.DedupWrittenIn(
            seconds=one.seconds, bytes=one.bytes, most=one.most, age=one.age)
        for one in windows[:survey_objects.MAX_WINDOWS]]
    result['hints'] = [
        hints for hints in map(
            _disk_hints, (found.disk_hints or ())[:objects.MAX_DISKS])
        if hints is not None]
    return result


def _disk_hints(hints: statistics.DiskHints
                ) -> survey_objects.DedupDiskHints | None:
    try:
        return survey_objects.DedupDiskHints(
            device=hints.device, pages=hints.pages, sampled=hints.sampled,
            valid=hints.valid)
    except ValueError as error:
        # QEMU runs the guest, and may be the guest's.
        LOG.warning('Hints of a disk are left out: %s', error)
        return None
