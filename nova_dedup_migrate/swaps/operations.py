# SPDX-License-Identifier: Apache-2.0
"""Swaps of volumes, on disk: what to settle, and what became of them.

A file INSTANCE.DISK.json for the last swap of each disk.  It is written
before libvirt is called.  Nova does its last steps after the driver's, so
a swap is open until nova-compute starts again and sees, from Cinder and
libvirt, that nothing is left to settle::

    begin() -> copying -> note() --start of nova-compute--> end()
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import dataclasses
import json
import logging
import os
import pathlib

LOG = logging.getLogger(__name__)

COPYING, ENDED = 'copying', 'ended'
_MAX_FILE = 1 << 16


@dataclasses.dataclass(frozen=True)
class Swap:
    """One swap.

    :ivar instance: UUID
    :ivar disk: in the guest's definition, such as 'vdb'
    :ivar path: of the new volume on this host, '' if it has none
    :ivar phase: COPYING or ENDED
    :ivar outcome: a sentence
    :ivar size: bytes of the volume, 0 if it was not filled
    :ivar sources: bytes of the new volume by where they came from: backup,
        agents (blocks of the backup that indexes had), zero, volume (the
        old one)
    :ivar different: bytes of the old volume that were known to be other
        ones than in the backup
    :ivar unknown: bytes that had not been read since they were written
    :ivar began: seconds since the epoch
    :ivar seconds: that filling and copying took
    """

    instance: str
    disk: str
    old_volume: str
    new_volume: str
    path: str
    phase: str = COPYING
    outcome: str = ''
    size: int = 0
    sources: dict[str, int] = dataclasses.field(default_factory=dict)
    different: int = 0
    unknown: int = 0
    began: float = 0.0
    seconds: float = 0.0


class SwapOperations:
    """The swaps of a host.

    :param directory: of the files
    """

    def __init__(self, directory: str) -> None:
        self._directory = pathlib.Path(directory)

    def begin(self, swap: Swap) -> None:
        """Write a swap before its side effects.

        :raises OSError:
        """
        self._write(swap)

    def note(self, swap: Swap) -> None:
        """Write how the driver's part has ended."""
        self._write(swap)

    def end(self, swap: Swap, outcome: str) -> None:
        """Note that there is nothing left to settle.

        :param outcome: replaces that of a swap that was interrupted
        """
        self._write(dataclasses.replace(
            swap, phase=ENDED, outcome=swap.outcome or outcome))

    def load(self, instance: str, disk: str) -> Swap | None:
        return self._read(self._directory / ('%s.%s.json'
                                             % (instance, disk)))

    def swaps(self) -> Iterator[Swap]:
        """Yield the last swap of each disk."""
        for path in sorted(self._directory.glob('*.json')):
            found = self._read(path)
            if found is not None:
                yield found

    def unfinished(self) -> Iterator[Swap]:
        """Yield the swaps that were not ended."""
        return (swap for swap in self.swaps() if swap.phase != ENDED)

    def _read(self, path: pathlib.Path) -> Swap | None:
        try:
            with open(path, 'rb') as file:
                given = json.loads(file.read(_MAX_FILE))
            # That of an earlier release may have others.
            found = Swap(**{field.name: given[field.name]
                            for field in dataclasses.fields(Swap)
                            if field.name in given})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            LOG.error('The swap in %s cannot be read: %s. Check the volumes '
                      'of the instance and remove the file', path, error)
            return None
        return found

    def _write(self, swap: Swap) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._directory / ('%s.%s.json' % (swap.instance, swap.disk))
        new = path.with_suffix('.new')
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(new, 'w'))
            json.dump(dataclasses.asdict(swap), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
