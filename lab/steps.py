# SPDX-License-Identifier: Apache-2.0
"""Steps that depend on each other, run as early and parallel as can be.

A line is printed as each ends. The first that fails keeps those that
have not begun from beginning; its error is raised when the others that
run have ended.
"""

from collections.abc import Callable
import concurrent.futures
import dataclasses
import sys
import time

from guests.errors import GuestError
from lab import client
from lab import errors

_EXPECTED = (errors.LabError, GuestError, RuntimeError, OSError,
             *client.ERRORS)


@dataclasses.dataclass(frozen=True)
class Step:
    """:ivar run: takes no argument; what it returns is printed if true
    :ivar after: names of the steps that come before
    """

    name: str
    run: Callable
    after: tuple = ()


class Progress:
    """Prints "[ seconds] name: text" lines."""

    def __init__(self, out=None):
        self._out = out or sys.stdout
        self._started = time.monotonic()

    @property
    def seconds(self):
        return time.monotonic() - self._started

    def say(self, text):
        print('[%6.1f] %s' % (self.seconds, text), file=self._out,
              flush=True)


def _timed(step):
    started = time.monotonic()
    text = step.run()
    return text, time.monotonic() - started


def check(steps):
    """Raise ValueError unless each step comes after earlier ones only."""
    known = set()
    for step in steps:
        missing = set(step.after) - known
        if missing or step.name in known:
            raise ValueError('step %s: %s' % (
                step.name, ', '.join(missing) or 'there are two'))
        known.add(step.name)


def run(steps, progress, workers=8):
    """Run them all.

    :param steps: in an order in which they could run one by one
    :raises LabError: a step failed
    """
    check(steps)
    waiting, done, running, failure = list(steps), set(), {}, None
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        while waiting or running:
            for step in [s for s in waiting if done.issuperset(s.after)]:
                if failure is None:
                    running[pool.submit(_timed, step)] = step
                waiting.remove(step)
            if failure is not None:
                waiting.clear()
            if not running:
                break
            ended, _rest = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in ended:
                step = running.pop(future)
                error = future.exception()
                if error is None:
                    done.add(step.name)
                    text, seconds = future.result()
                    progress.say('%s: %s (%.1f s)' % (
                        step.name, text or 'done', seconds))
                elif failure is None:
                    progress.say('%s: failed' % step.name)
                    failure = (step, error)
    if failure is not None:
        raise _explained(*failure)


def _explained(step, error):
    if not isinstance(error, _EXPECTED):
        # a mistake in this program: its traceback is what helps
        raise error
    explained = errors.LabError('%s: %s' % (step.name, error),
                                getattr(error, 'log', None))
    explained.__cause__ = error
    return explained
