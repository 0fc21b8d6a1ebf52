# SPDX-License-Identifier: Apache-2.0
"""Shows a migration while it goes on: one line that is rewritten on a
terminal, now and then a plain line elsewhere."""

import shutil
import sys
import time
from typing import TextIO

from nova_dedup_migrate.hypervisor import progress

_PLAIN_INTERVAL_S = 3.0
_PAGES_PER_MIB = 256


def line(
    name: str, elapsed: float, link_bytes: int, now: progress.Progress
) -> str:
    """One look at a migration, in at most 100 characters.

    :param elapsed: seconds since it began
    :param link_bytes: bytes on the link so far
    """
    paths = now.pages
    state = now.status
    if state == 'active':
        state = 'ETA ?' if now.eta_s is None else f'ETA {now.eta_s:.0f} s'
    return (
        f'{name:5} {elapsed:5.1f} s  {state:9}  round {now.rounds:<2} '
        f'{link_bytes / 1e6:6.1f} MB {now.mbps:5.0f} Mbit/s  '
        f'MiB: peer {paths.peer // _PAGES_PER_MIB}, '
        f'storage {paths.storage // _PAGES_PER_MIB}, '
        f'zero {paths.zero // _PAGES_PER_MIB}'
    )


class Display:
    """Prints lines about one run."""

    def __init__(self, name: str, out: TextIO | None = None) -> None:
        self._name = name
        self._out = out or sys.stdout
        self._live = self._out.isatty()
        self._last = -_PLAIN_INTERVAL_S
        self._dirty = False

    def note(self, text: str) -> None:
        """A line that stays."""
        self._finish_line()
        print(f'{self._name:5} {text}', file=self._out, flush=True)

    def show(
        self, elapsed: float, link_bytes: int, now: progress.Progress
    ) -> None:
        text = line(self._name, elapsed, link_bytes, now)
        if self._live:
            # A line that wraps could not be rewritten.
            width = shutil.get_terminal_size().columns - 1
            self._out.write(f'\r\x1b[K{text[:width]}')
            self._dirty = True
            if now.finished:
                self._finish_line()
        elif now.finished or (
            time.monotonic() - self._last >= _PLAIN_INTERVAL_S
        ):
            self._out.write(text + '\n')
            self._last = time.monotonic()
        self._out.flush()

    def _finish_line(self) -> None:
        if self._dirty:
            self._out.write('\n')
            self._dirty = False
