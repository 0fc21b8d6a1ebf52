# SPDX-License-Identifier: Apache-2.0
"""Statistics of QEMU about duplicated content.

The answers of query-x-dedup and x-dedup-sample-hints.  The fields and
their meaning are those of the QMP schema, qemu/src/qapi/dedup.json, with
'_' for '-'.
"""

import dataclasses

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors

_PAGE = 4096
#: Fewer pages say nothing about how well the others compress.
_ENOUGH = 64
#: Disks of a guest that may be refused.
_MAX_REFUSED = 64


@dataclasses.dataclass(frozen=True)
class HintStatistics:
    """DedupHintsInfo: which disk bytes guest pages are said to hold."""

    pages: int = 0
    memory_bytes: int = 0
    recorded: int = 0
    map_state: str = 'none'
    map_pages: int = 0
    map_kept: int = 0
    map_skipped: int = 0
    map_error: str | None = None


@dataclasses.dataclass(frozen=True)
class IndexStatistics:
    """DedupIndexInfo: the last search of the memory in the disks.

    Counts of pages; bytes of the disks.
    """

    state: str = 'done'
    reason: str | None = None
    pages: int = 0
    found_pages: int = 0
    changed_pages: int = 0
    bytes: int = 0
    done_bytes: int = 0
    read_bytes: int = 0
    memory_bytes: int = 0
    ns: int = 0

    @property
    def running(self):
        return self.state in ('memory', 'disks')


@dataclasses.dataclass(frozen=True)
class DiskHints:
    """DedupDiskSample: the hints of one disk, and how many still hold.

    :ivar device: the disk as Guest.arm_dedup takes it
    :ivar pages: guest pages with a hint to it
    :ivar sampled: of these, those that were compared with the disk
    :ivar valid: of sampled, those that hold what the disk holds
    """

    device: str
    pages: int
    sampled: int = 0
    valid: int = 0

    @classmethod
    def from_qmp(cls, reply):
        """Decode one entry of the answer of x-dedup-sample-hints."""
        reply = decode.mapping(reply, 'x-dedup-sample-hints')
        found = cls(device=decode.text(reply.get('device'), 'device'),
                    pages=decode.count(reply.get('hints'), 'hints'),
                    sampled=decode.count(reply.get('sampled'), 'sampled'),
                    valid=decode.count(reply.get('valid'), 'valid'))
        if not found.valid <= found.sampled <= found.pages:
            raise errors.MalformedReply(
                field='x-dedup-sample-hints', value=repr(reply)[:80],
                expected='no more valid than sampled, and no more sampled '
                         'than there are')
        return found


@dataclasses.dataclass(frozen=True)
class CompressionSample:
    """DedupCompressionSample: what a sample of the memory holds, in pages.

    :ivar pages: that were looked at
    :ivar zero_pages: of these, zeros
    :ivar hinted_pages: of these, pages that storage may hold
    :ivar sampled_pages: the rest, which was compressed
    :ivar compressed_bytes: to so many bytes
    """

    pages: int = 0
    zero_pages: int = 0
    hinted_pages: int = 0
    sampled_pages: int = 0
    compressed_bytes: int = 0

    @classmethod
    def from_qmp(cls, reply):
        """Decode the answer of x-dedup-sample-compression."""
        found = decode.dataclass(cls, reply, 'x-dedup-sample-compression')
        if (found.zero_pages + found.hinted_pages + found.sampled_pages
                > found.pages):
            raise errors.MalformedReply(
                field='x-dedup-sample-compression', value=repr(reply)[:80],
                expected='no more pages of all kinds than pages')
        return found

    @property
    def ratio(self):
        """Bytes on the link for a byte of the rest; None: not known."""
        if self.sampled_pages < _ENOUGH:
            return None
        return min(1.0, self.compressed_bytes / (self.sampled_pages * _PAGE))


@dataclasses.dataclass(frozen=True)
class SourceStatistics:
    """DedupSourceInfo: the sending side, counts in pages."""

    state: str = 'idle'
    reason: str | None = None
    peer_pages: int = 0
    zero_pages: int = 0
    record_pages: int = 0
    record_bytes: int = 0
    storage_pages: int = 0
    outstanding: int = 0
    nack_digest: int = 0
    nack_io: int = 0
    resent_pages: int = 0
    superseded_pages: int = 0
    final_pages: int = 0
    requested_pages: int = 0
    stale_hints: int = 0
    unresolved_hints: int = 0
    hint_pages: int = 0
    hint_bytes: int = 0
    peer_backlog: int = 0
    peer_read_rate: int = 0
    compressed_pages: int = 0
    compressed_bytes: int = 0
    incompressible_pages: int = 0
    uncompressed_pages: int = 0
    compression_ns: int = 0
    compression_threads: int = 0
    compression_level: int = 0
    deferred_pages: int = 0
    deferred_sent_pages: int = 0
    deferral_checks: int = 0
    round_trips: int = 0
    round_trip_us: int = 0
    negotiation_us: int = 0

    @property
    def compression_ratio(self):
        """Bytes on the link for a byte of compressed pages, 1.0: none."""
        if not self.compressed_pages:
            return 1.0
        return self.compressed_bytes / (self.compressed_pages * _PAGE)


@dataclasses.dataclass(frozen=True)
class RefusedDisk:
    """DedupRefusedDisk: one that the destination cannot read, and why."""

    device: str = ''
    reason: str = ''


@dataclasses.dataclass(frozen=True)
class IncomingStatistics:
    """DedupIncomingInfo: the receiving side, counts in pages."""

    active: bool = False
    record_pages: int = 0
    fetched_pages: int = 0
    superseded_pages: int = 0
    lazy_pages: int = 0
    hurried_reads: int = 0
    nack_digest: int = 0
    nack_io: int = 0
    hint_pages: int = 0
    hint_error: str | None = None
    reads: int = 0
    bytes_read: int = 0
    read_ns: int = 0
    max_read_ns: int = 0
    backlog: int = 0
    compressed_pages: int = 0
    compressed_bytes: int = 0
    compression_ns: int = 0
    compression_threads: int = 0
    refused: tuple[RefusedDisk, ...] = ()

    @classmethod
    def from_qmp(cls, reply, path):
        """Decode DedupIncomingInfo, which errors call path."""
        refused = decode.mapping(reply, path).get('refused', [])
        if not isinstance(refused, list) or len(refused) > _MAX_REFUSED:
            raise errors.MalformedReply(
                field=path + '.refused', value=repr(refused)[:80],
                expected='a list of %d disks at most' % _MAX_REFUSED)
        return decode.dataclass(cls, reply, path, refused=tuple(
            decode.dataclass(RefusedDisk, one, path + '.refused')
            for one in refused))

    @classmethod
    def from_event(cls, data):
        """Decode the data of X_DEDUP_INCOMING_DONE."""
        data = decode.mapping(data, 'X_DEDUP_INCOMING_DONE')
        return cls.from_qmp(data.get('info'), 'info')

    @property
    def mean_read_ms(self):
        """Mean latency of a read request in milliseconds."""
        return self.read_ns / self.reads / 1e6 if self.reads else 0.0


@dataclasses.dataclass(frozen=True)
class DedupStatistics:
    """DedupInfo; the parts that are None never were at work."""

    tracking: bool = False
    hints: HintStatistics = HintStatistics()
    index: IndexStatistics | None = None
    source: SourceStatistics | None = None
    incoming: IncomingStatistics | None = None

    @classmethod
    def from_qmp(cls, reply):
        """Decode the answer of query-x-dedup."""
        reply = decode.mapping(reply, 'query-x-dedup')
        parts = {
            name: decode.dataclass(part, reply[name], name)
            for name, part in (('hints', HintStatistics),
                               ('index', IndexStatistics),
                               ('source', SourceStatistics))
            if name in reply}
        if 'incoming' in reply:
            parts['incoming'] = IncomingStatistics.from_qmp(
                reply['incoming'], 'incoming')
        return cls(tracking=decode.flag(reply.get('tracking', False),
                                        'tracking'), **parts)
