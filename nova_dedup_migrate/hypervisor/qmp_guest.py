# SPDX-License-Identifier: Apache-2.0
"""What needs nothing but QMP, however the commands get to QEMU."""

import abc
from collections.abc import Iterable
import contextlib
import itertools
import time
import typing

from nova_dedup_migrate.hypervisor import base
from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import memory
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import watching

_MIB = 1 << 20
#: Pages to compare for a dirty rate: the error is a percent or two.
_SAMPLES = 8192
#: Disks that hints can be about (DEDUP_MAX_SLOTS).
_MAX_DISKS = 127
#: What QEMU allows (dirtyrate.h).
_SAMPLES_PER_GIB = (128, 16384)
#: Numbers for the names of descriptors that are passed.
_numbers = itertools.count(1)


class QmpGuest(base.Guest):
    """Guest, as far as it is a matter of QMP commands.

    :ivar qmp_timeout: seconds a command may take
    """

    qmp_timeout = 60.0

    @abc.abstractmethod
    def execute(self, command: str, arguments: dict,
                timeout: float | None = None) -> typing.Any:
        """Run a QMP command; see Guest.qmp.

        :param timeout: seconds, default qmp_timeout
        """

    @abc.abstractmethod
    def execute_with_fd(self, fd: int, command: str,
                        arguments: dict) -> typing.Any:
        """Run a QMP command that takes a file descriptor."""

    def qmp(self, command: str, /, **arguments: object) -> typing.Any:
        return self.execute(command, arguments)

    def run_state(self) -> str:
        reply = decode.mapping(self.qmp('query-status'), 'query-status')
        return decode.text(reply.get('status'), 'status')

    def dirty_rate(self, seconds: float = 1) -> int:
        size = sum(part.size for part in memory.ranges(self))
        low, high = _SAMPLES_PER_GIB
        self.qmp('calc-dirty-rate', **{
            'calc-time': seconds, 'mode': 'page-sampling',
            'sample-pages': min(max(low, _SAMPLES * memory.GIB // size),
                                high)})
        deadline = time.monotonic() + seconds + self.qmp_timeout
        while True:
            time.sleep(min(0.1, seconds / 10))
            reply = decode.mapping(self.qmp('query-dirty-rate'),
                                   'query-dirty-rate')
            if reply.get('status') == 'measured':
                return _MIB * decode.count(reply.get('dirty-rate'),
                                           'dirty-rate')
            if time.monotonic() > deadline:
                raise errors.WaitTimeout(what='measuring the dirty rate',
                                         seconds=seconds)

    def memory_in_use(self) -> sampling.InUse:
        return sampling.InUse.from_qmp(
            self._dedup(sampling.COMMAND, pages=sampling.PAGES))

    def page_digests(self, seed: int) -> digests.PageDigests:
        return digests.PageDigests.from_qmp(
            self._dedup(digests.COMMAND, seed=seed, pages=digests.PAGES))

    def disk_bytes_written(self) -> int:
        reply = self.qmp('query-blockstats')
        if not isinstance(reply, list):
            raise errors.MalformedReply(field='query-blockstats',
                                        value=repr(reply)[:80],
                                        expected='a list')
        written = 0
        for device in reply:
            found = decode.mapping(device, 'query-blockstats').get('stats')
            written += decode.count(
                decode.mapping(found, 'stats').get('wr_bytes'), 'wr_bytes')
        return written

    def progress(self, dedup: bool = True) -> progress.Progress:
        reply = self.qmp('query-migrate')
        known = None
        if dedup:
            try:
                known = self.dedup_statistics()
            except errors.DedupNotSupported:
                # that is what None means
                pass
        return progress.Progress.from_qmp(reply, known)

    # Dedup

    def _dedup(self, command: str, **arguments: object) -> typing.Any:
        try:
            return self.qmp(command, **arguments)
        except errors.CommandNotFound as error:
            raise errors.DedupNotSupported(name=self.name) from error

    def is_patched(self) -> bool:
        try:
            self.dedup_statistics()
        except errors.DedupNotSupported:
            return False
        return True

    def track_dedup(self, enable: bool = True) -> None:
        self._dedup('x-dedup-track', enable=enable)

    def arm_dedup(self, copy: str = 'shared', disks: Iterable[dict] = (),
                  resend: bool = True, fetch_rate: int = 0,
                  fetch_iops: int = 0, records: bool = True,
                  compression: dict[str, int] | None = None,
                  lazy: bool = False,
                  defer_redirtied: bool = False) -> None:
        arguments: dict[str, object] = {'disks': list(disks)} if disks else {}
        if fetch_rate:
            arguments['fetch-rate'] = fetch_rate
        if fetch_iops:
            arguments['fetch-iops'] = fetch_iops
        if not records:
            arguments['records'] = False
        if lazy:
            arguments['lazy'] = True
        if defer_redirtied:
            arguments['defer-redirtied'] = True
        if compression is not None:
            arguments['compression'] = compression
        self._dedup('x-dedup-arm', copy=copy, resend=resend, **arguments)

    def disarm_dedup(self) -> None:
        self._dedup('x-dedup-disarm')

    def allow_downtime(self, milliseconds: int) -> None:
        self.qmp('migrate-set-parameters',
                 **{'downtime-limit': milliseconds})

    def limit_bandwidth(self, bytes_per_s: int) -> None:
        self.qmp('migrate-set-parameters',
                 **{'max-bandwidth': bytes_per_s})

    def pass_fd(self, fd: int, purpose: str) -> str:
        """Pass a file descriptor, return its name for a command.

        :param purpose: begins the name
        """
        name = '%s-%d' % (purpose, next(_numbers))
        self.execute_with_fd(fd, 'getfd', {'fdname': name})
        return name

    def close_fd(self, name: str) -> None:
        """Have QEMU close what pass_fd passed and no command has taken."""
        with contextlib.suppress(errors.QmpError):
            self.qmp('closefd', fdname=name)

    def consume_fd(self, command: str, field: str, name: str,
                   **arguments: object) -> typing.Any:
        """Run a command of ours that consumes a descriptor.

        :param field: the argument that has its name
        """
        try:
            return self._dedup(command, **arguments, **{field: name})
        except errors.DedupNotSupported:
            # whoever knows the command consumes the descriptor
            self.close_fd(name)
            raise

    def load_dedup_map(self, fd: int) -> None:
        self.consume_fd('x-dedup-load-map', 'fdname',
                        self.pass_fd(fd, 'dedup-map'))

    def index_disks(self, devices: Iterable[str] | None = None,
                    rate: int | None = None, memory: int | None = None,
                    cached: bool = False) -> None:
        arguments: dict[str, object] = {'cached': True} if cached else {}
        if devices is not None:
            arguments['devices'] = list(devices)
        if rate is not None:
            arguments['rate'] = rate
        if memory is not None:
            arguments['memory'] = memory
        self._dedup('x-dedup-index-disks', **arguments)

    def cancel_index(self) -> None:
        self._dedup('x-dedup-index-cancel')

    def sample_hints(self, pages: int = 512
                     ) -> tuple[statistics.DiskHints, ...]:
        reply = self._dedup('x-dedup-sample-hints', pages=pages)
        if not isinstance(reply, list) or len(reply) > _MAX_DISKS:
            raise errors.MalformedReply(
                field='x-dedup-sample-hints', value=repr(reply)[:80],
                expected='a list of %d disks at most' % _MAX_DISKS)
        return tuple(map(statistics.DiskHints.from_qmp, reply))

    def sample_compression(self, pages: int = 4096
                           ) -> statistics.CompressionSample:
        return statistics.CompressionSample.from_qmp(
            self._dedup('x-dedup-sample-compression', pages=pages))

    def dedup_statistics(self) -> statistics.DedupStatistics:
        return statistics.DedupStatistics.from_qmp(
            self._dedup('query-x-dedup'))

    # Disks

    def watch_disk(self, device: str, granularity: int | None = None,
                   recorder: str | None = None) -> watching.DiskWatch:
        arguments: dict[str, object] = {}
        if granularity is not None:
            arguments['granularity'] = granularity
        if recorder is not None:
            arguments['recorder'] = recorder
        return watching.DiskWatch.from_qmp(self._dedup(
            'x-dedup-disk-watch', device=device, **arguments))

    def claim_disk(self, token: str) -> watching.DiskWatch:
        return watching.DiskWatch.from_qmp(self._dedup(
            'x-dedup-disk-claim', token=token))

    def clear_disk(self, token: str, offset: int, length: int) -> None:
        self._dedup('x-dedup-disk-clear', token=token, offset=offset,
                    length=length)

    def arm_disk(self, token: str, proven: bytes, canary_offset: int,
                 canary: bytes) -> watching.DiskWatch:
        return watching.arm(self, token, proven, canary_offset, canary)

    def dirty_granules(self, watch: watching.DiskWatch) -> bytes:
        return watching.dirty(self, watch)

    def disk_watches(self) -> tuple[watching.DiskWatch, ...]:
        return watching.watches(self._dedup('x-dedup-disk-query'))

    def drop_disk(self, token: str) -> None:
        self._dedup('x-dedup-disk-drop', token=token)

    def exported_disk(self, node_name: str, brief: bool = False
                      ) -> contextlib.AbstractContextManager[str]:
        return disk_export.exported(self, node_name, brief)
