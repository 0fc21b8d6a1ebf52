# SPDX-License-Identifier: Apache-2.0
"""Swaps of volumes, on disk: what to settle, and what became of them.

A file INSTANCE.DISK.json for the last swap of each disk.  It is written
before anything else is done.  Nova does its last steps after the driver's,
so a swap is open until nova-compute starts again and sees, from Cinder and
libvirt, that nothing is left to settle::

    begun -> filling -> mirroring -> pivoting -> pivoted --start--> ended

A swap that fails has an outcome, and keeps its phase.  So the phase shows
which volume the guest has, or had when it ended: up to mirroring the old
one, from pivoted on the new one.

A file INSTANCE.DISK.abort is an administrator's request to end a swap.  It
names the new volume, so that it is not taken for one to end another swap.
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

#: Nova connects the new volume.
BEGUN = 'begun'
FILLING = 'filling'
#: QEMU may have a mirror job.
MIRRORING = 'mirroring'
#: The guest may have either volume.
PIVOTING = 'pivoting'
PIVOTED = 'pivoted'
ENDED = 'ended'
#: Of an earlier release: any of the above but the last.
COPYING = 'copying'
_MAX_FILE = 1 << 16
#: Bytes of a request, at most.
_MAX_REQUEST = 256


@dataclasses.dataclass(frozen=True)
class Swap:
    """One swap.

    :ivar instance: UUID
    :ivar disk: in the guest's definition, such as 'vdb'
    :ivar path: of the new volume on this host, '' if it has none, or none
        yet
    :ivar phase: one of the above
    :ivar outcome: a sentence, '' as long as the driver is at work
    :ivar size: bytes of the volume, 0 if it was not filled
    :ivar sources: bytes of the new volume by where they came from: backup,
        agents (blocks of the backup that indexes had), zero, volume (the
        old one)
    :ivar different: bytes of the old volume that were known to be other
        ones than in the backup
    :ivar unknown: bytes that had not been read since they were written
    :ivar began: seconds since the epoch
    :ivar seconds: that filling and copying took
    :ivar done: bytes that were filled or mirrored in this phase
    :ivar total: bytes of this phase, 0 if that is not known
    """

    instance: str
    disk: str
    old_volume: str
    new_volume: str
    path: str
    phase: str = BEGUN
    outcome: str = ''
    size: int = 0
    sources: dict[str, int] = dataclasses.field(default_factory=dict)
    different: int = 0
    unknown: int = 0
    began: float = 0.0
    seconds: float = 0.0
    done: int = 0
    total: int = 0

    @property
    def under_way(self) -> bool:
        """Whether the driver is at work, unless nova-compute has ended."""
        return not self.outcome and self.phase not in (PIVOTED, ENDED)


class SwapOperations:
    """The swaps of a host.

    :param directory: of the files
    """

    def __init__(self, directory: str) -> None:
        self._directory = pathlib.Path(directory)

    def write(self, swap: Swap) -> None:
        """Write a swap; afterwards it is on the disk.

        :raises OSError:
        """
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(swap, 'json')
        new = self._path(swap, 'new')
        with open(new, 'w') as file:
            json.dump(dataclasses.asdict(swap), file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        directory = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def end(self, swap: Swap, outcome: str) -> None:
        """Note that there is nothing left to settle.

        :param outcome: of a swap that was interrupted
        :raises OSError:
        """
        self.write(dataclasses.replace(
            swap, phase=ENDED, outcome=swap.outcome or outcome))
        self.withdraw_abort(swap)

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

    # Requests

    def request_abort(self, swap: Swap) -> None:
        """Request that a swap be ended; by any process of this host.

        :raises OSError:
        """
        self.withdraw_abort(swap)
        # The directory is another user's: no link of his is followed.
        file = os.open(self._path(swap, 'abort'),
                       os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        with open(file, 'w') as request:
            request.write(swap.new_volume)

    def is_abort_requested(self, swap: Swap) -> bool:
        try:
            with open(self._path(swap, 'abort'), 'rb') as file:
                found = file.read(_MAX_REQUEST)
        except OSError:
            return False
        return found == swap.new_volume.encode()

    def withdraw_abort(self, swap: Swap) -> None:
        """Remove a request, if there is one."""
        with contextlib.suppress(OSError):
            self._path(swap, 'abort').unlink()

    # Files

    def _path(self, swap: Swap, suffix: str) -> pathlib.Path:
        return self._directory / ('%s.%s.%s' % (swap.instance, swap.disk,
                                                suffix))

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
