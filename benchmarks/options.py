# SPDX-License-Identifier: Apache-2.0
"""Options of the demo: what is migrated, over what, and how."""

import argparse
import dataclasses
from pathlib import Path

from guests.errors import GuestError
from guests.synthetic import disk
from guests.synthetic import workload as workloads
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.planner import pacing
from testkit import options as hypervisor_options
from testkit import spec

STORAGES = ('shared', 'own', 'slow', 'failing')
PEERS = ('none', 'source', 'destination')
RUNS = ('stock', 'zstd', 'dedup')
WRITERS = ('pagecache-writer', 'anon-writer', 'mixed', 'small-files')

#: Memory sizes in MiB that are tried, in turn, when none is given.
_MEMORY = (512, 768, 1024)


@dataclasses.dataclass(frozen=True)
class Options:
    """The options, checked.

    link: Mbit/s (10^6 bit), 0: unlimited; start_link: Mbit/s of the first
    round, see planner/pacing.py, 0: all rounds at link; wire: Mbit/s that can
    pass, whatever QEMU wants, 0: unlimited; delay: ms of a round trip on the
    link; memory: MiB; duplicates: % of
    the memory in use; write_rate, read_rate, storage_rate: MB/s (10^6 B);
    wss: MiB of anonymous memory that are written to, 0: all; timeout:
    seconds after which a migration is cancelled; compress: whether ours
    compresses what it sends, compress_level, compress_threads: how, 0:
    what is best; defer: whether pages that are written to again wait for
    the next round.
    """

    link: float = 200.0
    start_link: float = 0.0
    wire: float = 0.0
    delay: float = 0.0
    memory: int = 512
    duplicates: int = 70
    workload: str = 'read'
    write_rate: float = 11.0
    read_rate: float = 200.0
    wss: int = 0
    format: str = 'raw'
    layout: str = 'whole'
    device: str = 'virtio-blk'
    storage: str = 'shared'
    storage_rate: float = 10.0
    multifd: int = 0
    compression: str = 'none'
    xbzrle: bool = False
    auto_converge: bool = False
    postcopy: bool = False
    stock_peer: str = 'none'
    timeout: int = 120
    accel: str = 'tcg'
    incompressible: bool = False
    compress: bool = False
    compress_level: int = 0
    compress_threads: int = 0
    defer: bool = False
    relay: bool = True
    runs: tuple[str, ...] = RUNS

    @property
    def link_bytes_per_s(self) -> int | None:
        """Bytes per second, None for no limit."""
        return _bytes_per_s(self.link)

    @property
    def wire_bytes_per_s(self) -> int | None:
        """Bytes per second, None for no limit."""
        return _bytes_per_s(self.wire)

    @property
    def delay_s(self) -> float:
        return self.delay / 1000

    @property
    def qmp_compression(self) -> dict[str, int] | None:
        """Argument of x-dedup-arm, None: nothing is compressed."""
        if not self.compress:
            return None
        given = {
            'level': self.compress_level,
            'threads': self.compress_threads,
        }
        return {name: value for name, value in given.items() if value}

    def rival(self) -> 'Options':
        """What stock QEMU has of its own: multifd, compressed."""
        return dataclasses.replace(
            self, multifd=self.multifd or 2, compression='zstd'
        )

    @property
    def pacing(self) -> pacing.AdaptiveRate | None:
        """What sets the rate of each round, None: QEMU alone."""
        if not self.start_link:
            return None
        return pacing.AdaptiveRate(
            int(self.start_link * 125_000), int(self.link * 125_000)
        )

    def guest_workload(self) -> workloads.Workload:
        cache, anon = workloads.sizes_for_share(self.memory, self.duplicates)
        return workloads.Workload(
            mode=self.workload,
            cache=cache,
            anon=anon,
            wss=self.wss or None,
            rate=int(self.write_rate * 1000),
            readrate=int(self.read_rate * 1000),
            incompressible=int(self.incompressible),
        )

    def migration(self) -> hypervisor_options.MigrationOptions:
        """How the hypervisor is told; OptionError if it cannot be."""
        first = _bytes_per_s(self.start_link) or self.link_bytes_per_s
        special: dict[str, object] = {}
        if self.pacing is not None:
            special = _last_round(self.pacing.maximum)
        return hypervisor_options.MigrationOptions(
            max_bandwidth=first,
            max_postcopy_bandwidth=self.link_bytes_per_s,
            multifd_channels=self.multifd,
            multifd_compression=self.compression,
            xbzrle=self.xbzrle,
            postcopy=self.postcopy,
            auto_converge=self.auto_converge,
            pause_before_switchover=self.storage == 'own',
            # It arrives paused, so that memory can be compared before
            # the guest changes it.
            paused=True,
            **special,
        )


def _last_round(maximum: int) -> dict[str, object]:
    """MigrationOptions that make QEMU begin it with pacing.LAST left.

    It does so when the rest would take less than downtime_limit_ms at the
    bandwidth it is promised.
    """
    return {
        'downtime_limit_ms': -(-pacing.LAST * 1000 // maximum),
        'parameters': {'avail-switchover-bandwidth': maximum},
    }


def _bytes_per_s(mbit_per_s: float) -> int | None:
    return int(mbit_per_s * 125_000) or None


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one sentence, without the usage."""

    def error(self, message: str) -> None:
        self.exit(2, f'{self.prog}: {message}\n')


def _number(low: float, high: float, kind: type = int):
    def parse(text: str):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f'{text!r} is not a number from {low:g} to {high:g}'
            )
        return value

    return parse


def _runs(text: str) -> tuple[str, ...]:
    runs = tuple(text.split(','))
    if not set(runs) <= set(RUNS) or len(set(runs)) != len(runs):
        raise argparse.ArgumentTypeError(
            f'{text!r} is not some of {",".join(RUNS)}'
        )
    return runs


def parser() -> argparse.ArgumentParser:
    default = Options()
    result = _Parser(
        prog='demo',
        description='Migrate a small running guest between two QEMUs on '
        'this machine, first as stock QEMU does it, then with duplicated '
        'pages left out, and compare.',
        allow_abbrev=False,
    )

    def add(name, help, **keywords):
        field = name.replace('-', '_')
        keywords.setdefault('default', getattr(default, field, None))
        if keywords['default'] not in (None, False):
            help += ' (default: %(default)s)'
        result.add_argument('--' + name, help=help, **keywords)

    rate = _number(0, 1e6, float)
    add(
        'link',
        'rate QEMU is told to keep to, 0: unlimited',
        type=rate,
        metavar='Mbit/s',
    )
    add(
        'start-link',
        'rate of the first round; each next one goes at the rate the guest '
        'writes at plus 50 Mbit/s, the last one at --link; 0: all at --link',
        type=rate,
        metavar='Mbit/s',
    )
    add(
        'wire',
        'rate the link itself can carry, 0: unlimited',
        type=rate,
        metavar='Mbit/s',
    )
    add(
        'delay',
        'round trip of the link',
        type=_number(0, 10_000, float),
        metavar='ms',
    )
    add(
        'memory',
        "the guest's memory (default: 512, or as much as the share of "
        'duplicates needs)',
        type=_number(256, 65536),
        metavar='MiB',
        default=None,
    )
    add(
        'duplicates',
        'share of the memory in use that is also on the disk; the papers '
        'have 10, 35, 60 and 85',
        type=_number(5, 90),
        metavar='PERCENT',
    )
    add('workload', 'what the guest does', choices=workloads.MODES)
    add('write-rate', "the writers' rate", type=rate, metavar='MB/s')
    add(
        'read-rate',
        'rate at which the guest reads and verifies',
        type=rate,
        metavar='MB/s',
    )
    add(
        'wss',
        'anonymous memory the writers write to, 0: all of it',
        type=_number(0, 65536),
        metavar='MiB',
    )
    add('format', 'format of the disk image', choices=disk.FORMATS)
    add(
        'layout',
        'file system on the whole disk, or in a partition that is not '
        'aligned to 4 KiB',
        choices=disk.LAYOUTS,
    )
    add('device', "the guest's disk controller", choices=_devices())
    add(
        'storage',
        "the destination's storage: shared with the source; its own copy; "
        'shared and slow; shared, but every read fails',
        choices=STORAGES,
    )
    add(
        'storage-rate',
        'rate of slow storage',
        type=_number(0.1, 1e5, float),
        metavar='MB/s',
    )
    add('multifd', 'multifd channels', type=_number(0, 16), metavar='N')
    add(
        'compression',
        'compression of multifd channels',
        choices=hypervisor_options.COMPRESSIONS,
    )
    add(
        'incompressible',
        'fill anonymous memory with noise; otherwise it compresses to a '
        "fifth, as a Debian guest's",
        action='store_true',
    )
    add('xbzrle', 'send deltas of rewritten pages', action='store_true')
    add('auto-converge', 'slow a runaway guest', action='store_true')
    add('postcopy', 'switch over after 2 s', action='store_true')
    add('stock-peer', 'side that runs a stock QEMU', choices=PEERS)
    add(
        'timeout',
        'cancel a migration that takes longer',
        type=_number(1, 86400),
        metavar='SECONDS',
    )
    add('accel', "QEMU's accelerator", choices=('tcg', 'kvm'))
    add(
        'runs',
        'some of stock; zstd: stock with multifd and its compression; '
        'dedup: ours. Without --runs: all of them that can be had with the '
        'other options',
        type=_runs,
        default=None,
    )
    result.add_argument(
        '--disk',
        action='store_true',
        help="mirror the guest's disk instead of its memory; see --disk "
        '--help',
    )
    result.add_argument(
        '--no-compression',
        dest='compress',
        action='store_false',
        help='do not compress what ours sends',
    )
    result.add_argument(
        '--no-relay',
        dest='relay',
        action='store_false',
        help="believe QEMU's own count of bytes instead of counting them "
        'between the two',
    )
    result.add_argument(
        '--output',
        type=Path,
        default=Path('build/demo'),
        help='directory for report.json, the chart and logs (%(default)s)',
        metavar='DIR',
    )
    for kind in ('stock', 'patched'):
        result.add_argument(
            f'--{kind}-binary',
            metavar='FILE',
            help=f'the {kind} qemu-system-x86_64 (default: what '
            f'"make qemu" has built)',
        )
    return result


def _devices() -> tuple[str, ...]:
    # QEMU cannot migrate a guest with an emulated NVMe disk.
    return tuple(device for device in spec.DEVICES if device != 'nvme')


def _fitting_memory(duplicates: int) -> int:
    for memory in _MEMORY:
        try:
            workloads.sizes_for_share(memory, duplicates)
        except GuestError:
            continue
        return memory
    return _MEMORY[-1]


def _all_runs(given: argparse.Namespace) -> tuple[str, ...]:
    """Multifd is not to be had with deltas or post-copy, or twice."""
    if (
        given.xbzrle
        or given.postcopy
        or given.compression != 'none'
        or given.stock_peer != 'none'
    ):
        return 'stock', 'dedup'
    return RUNS


def parse(arguments: list[str] | None = None):
    """(Options, argparse's namespace); exits with 2 on a wrong value."""
    front = parser()
    given = front.parse_args(arguments)
    values = vars(given)
    if given.memory is None:
        values['memory'] = _fitting_memory(given.duplicates)
    if given.runs is None:
        values['runs'] = _all_runs(given)
    fields = {f.name for f in dataclasses.fields(Options)}
    chosen = Options(**{k: v for k, v in values.items() if k in fields})
    try:
        chosen.migration()
        chosen.guest_workload()
    except (errors.OptionError, GuestError) as error:
        front.error(str(error))
    if chosen.start_link > chosen.link:
        front.error('--start-link cannot be more than --link')
    if chosen.wire and not chosen.relay:
        front.error('--wire is kept by the relay, without which it cannot be')
    if chosen.delay and not chosen.relay:
        front.error('--delay is kept by the relay, without which it cannot be')
    if chosen.storage == 'own' and chosen.postcopy:
        # The mirror ends at the switch-over, which post-copy does not
        # pause at.
        front.error('--storage own cannot be had with --postcopy')
    return chosen, given
