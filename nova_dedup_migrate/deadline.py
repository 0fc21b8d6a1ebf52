# SPDX-License-Identifier: Apache-2.0
"""Work that may hang, with a deadline.

System calls on a file system whose server is away do not return and
cannot be aborted, and a message bus that is away is waited for without
end.  Such work is done in a thread of its own.  A thread that is late is
left behind, and there is a limit to how many are::

    queue --a thread is free--> running --in time--> done
      |                            |
      | deadline                   | deadline
      v                            v
     Busy                   Late; the thread hangs until it returns

The queue is first come, first served.  Up to limit threads run and up to
limit may hang before no new one is started, so there are never more than
twice as many.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
import concurrent.futures
import functools
import threading
import time
from typing import Any
from typing import TypeVar

from nova_dedup_migrate import errors

_Result = TypeVar('_Result')


class Late(errors.DedupMigrateError):
    """Something was not done in time; it may still go on."""

    template = '{what} did not answer within {seconds:.3g} s'


class Busy(Late):
    """The time passed before there was a thread for it."""

    template = ('no thread was free for {what} within {seconds:.3g} s: '
                '{hanging} earlier requests hang, {running} are running. '
                'Check that {what} answers; a thread is free again as soon '
                'as one of them returns')


class _Job:
    """A function to call; late and finished are the Runner's to change."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.future: concurrent.futures.Future = concurrent.futures.Future()
        self.late = False
        self.finished = False


class Runner:
    """Runs functions with a deadline.

    :param what: that they wait for, as messages name it
    :param limit: threads that run at a time, and threads that may hang
    """

    def __init__(self, what: str, limit: int) -> None:
        self._what = what
        self._limit = limit
        self._guard = threading.Lock()
        self._waiting: collections.deque[_Job] = collections.deque()
        self._running = 0
        self._hanging = 0

    def run(self, seconds: float, function: Callable[..., _Result],
            *args: Any, **kwargs: Any) -> _Result:
        """Return what function returns if that takes no more than seconds.

        The time includes that for which others come first.

        :raises Late: it takes more; Busy if it was not even begun
        """
        seconds = max(0.0, seconds)
        end = time.monotonic() + seconds
        job = _Job(functools.partial(function, *args, **kwargs))
        with self._guard:
            self._waiting.append(job)
            self._start()
        try:
            return job.future.result(max(0.0, end - time.monotonic()))
        except concurrent.futures.TimeoutError:
            if job.future.done():
                # function's own
                raise
        self._leave(job, seconds)
        # It finished at the last moment.
        return job.future.result()

    def _leave(self, job: _Job, seconds: float) -> None:
        """Give up a job, unless it has finished.

        :raises Late:
        """
        with self._guard:
            if job.finished:
                return
            if job in self._waiting:
                self._waiting.remove(job)
                raise Busy(what=self._what, seconds=seconds,
                           hanging=self._hanging, running=self._running)
            job.late = True
            self._running -= 1
            self._hanging += 1
            self._start()
        raise Late(what=self._what, seconds=seconds)

    def _start(self) -> None:
        """Start what may be started; the guard is held."""
        while (self._waiting and self._running < self._limit
               and self._hanging < self._limit):
            job = self._waiting.popleft()
            # An executor would wait for the thread when the process ends.
            thread = threading.Thread(target=self._work, args=(job,),
                                      name='dedup-deadline', daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The system has no more threads.
                job.finished = True
                job.future.set_exception(error)
            else:
                self._running += 1

    def _work(self, job: _Job) -> None:
        result, failure = None, None
        try:
            result = job.function()
        except BaseException as error:
            failure = error
        with self._guard:
            job.finished = True
            if job.late:
                self._hanging -= 1
            else:
                self._running -= 1
            self._start()
        if failure is not None:
            job.future.set_exception(failure)
        else:
            job.future.set_result(result)
