# SPDX-License-Identifier: Apache-2.0
"""--wait: progress on standard error until something has ended.

On a terminal one line is written over again; elsewhere there is a line
for each change.  Ctrl-C ends the waiting and not what is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
import sys
import time
from typing import Any
from typing import TextIO

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions

#: Exit status: it needs an operator, it failed, the waiting was ended.
PARTIAL = 2
FAILED = 3
DETACHED = 130
#: Seconds between two looks.
INTERVAL = 2.0
#: Seconds for which the controller may not answer.
PATIENCE = 300.0
_BAR = 20
_CLEAR = '\r\x1b[K'


class Progress:
    """:param out: where the lines go"""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._tty = self._out.isatty()
        self._last = ''

    def show(self, line: str) -> None:
        if line == self._last:
            return
        self._last = line
        self._out.write(_CLEAR + line if self._tty else line + '\n')
        self._out.flush()

    def end(self) -> None:
        if self._tty and self._last:
            self._out.write('\n')


def bar(share: float) -> str:
    """Return a bar of a share of 0 to 1."""
    full = round(_BAR * min(1.0, max(0.0, share)))
    return '[%s%s]' % ('#' * full, '.' * (_BAR - full))


def _patiently(look: Callable[[], Any], progress: Progress,
               interval: float) -> Any:
    """Return what look() returns, though the controller may be away.

    What is waited for goes on when it is back, so waiting does, too; for
    PATIENCE seconds.
    """
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return look()
        except (ksa_exceptions.ConnectFailure,
                exceptions.HttpException) as error:
            status = getattr(error, 'status_code', None)
            if time.monotonic() > end or (status is not None
                                          and status < 500):
                raise
            progress.show('The controller does not answer; waiting')
            time.sleep(interval)


def wait(look: Callable[[], Any], is_over: Callable[[Any], bool],
         describe: Callable[[Any], str], interval: float = INTERVAL
         ) -> tuple[Any, bool]:
    """Return what look() returned last, and whether it is over.

    :param look: reads what is waited for
    :param describe: returns one line about it
    """
    progress = Progress()
    found = look()
    try:
        while True:
            progress.show(describe(found))
            if is_over(found):
                return found, True
            time.sleep(interval)
            found = _patiently(look, progress, interval)
    except KeyboardInterrupt:
        return found, False
    finally:
        progress.end()
