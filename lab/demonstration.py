# SPDX-License-Identifier: Apache-2.0
"""Migrates guests to and fro, stock and dedup in alternation.

Instances are made and migrated with calls of the Compute API alone. What
it does not tell is measured on the hosts: bytes at the migration network's
links, downtime as libvirt at the destination has it, and the content of
the guest's memory, which the guest verifies.
"""

import concurrent.futures
import dataclasses
import json
import statistics

from guests.synthetic import console
from lab import client
from lab import disk_table
from lab import errors
from lab import guest
from lab import instances
from lab import migrations
from testkit import table


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """What is shown.

    :ivar kinds: of instances.KINDS, one instance for each; one may be
        there twice
    :ivar rounds: migrations of each
    :ivar disks: instances.Disks
    :ivar at_once: all migrate at the same time, two of them from
        different hosts and so in opposite directions
    :ivar keep: do not delete them
    :ivar lister: what happens to the listers of guests of the kind
        page_cache at each migration, of console.LISTER_FAULTS
    :ivar write: KB/s that the guests write meanwhile, None: nothing
    """

    kinds: tuple
    rounds: int
    disks: instances.Disks
    at_once: bool
    keep: bool
    lister: str | None
    write: int | None


def run(cloud, wanted, json_file, found, progress):
    """Show it.

    :param found: testkit.results.Results, to which rows are added
    """
    outcomes = measure(cloud, wanted, progress)
    print()
    print(show(outcomes))
    if json_file is not None:
        json_file.write_text(json.dumps(
            [dataclasses.asdict(one) for one in outcomes], indent=1) + '\n')
    judge(outcomes, found)


def judge(outcomes, found):
    """Add rows for each kind of instance."""
    for kind in dict.fromkeys(one.kind for one in outcomes):
        ours = [one for one in outcomes if one.kind == kind]
        found.add(kind + ': migrations', len(ours), '', '1 or more', True)
        found.add(kind + ': time',
                  statistics.fmean(one.seconds for one in ours), 's', 'any',
                  True)
        found.add(kind + ': sent on the link', statistics.fmean(
            one.link_bytes for one in ours) / 1e6, 'MB', 'any', True)
        wrong = sum(one.errors for one in ours)
        found.add(kind + ': wrong pages', wrong, '', '0', not wrong)
        differing = [words for one in ours for words in one.differing]
        found.add(kind + ': disks that differ', '; '.join(differing) or 'none',
                  '', 'none', not differing)


def measure(cloud, wanted, progress):
    """Boot the guests and migrate them; a list of Outcome.

    :param wanted: Demonstration
    :raises LabError: one does not start, or does not arrive
    """
    for kind in wanted.kinds:
        if kind not in instances.KINDS:
            raise errors.LabError('there is no kind %s: choose from %s' % (
                kind, ', '.join(instances.KINDS)))
    compute = client.connect(cloud).compute
    servers, outcomes = [], []
    try:
        for number, kind in enumerate(wanted.kinds):
            again = wanted.kinds[:number].count(kind)
            name = 'demo-%s%s' % (kind, '-%d' % (again + 1) if again else '')
            servers.append(instances.boot(cloud, name, kind, wanted.disks))
        for number, server in enumerate(servers):
            servers[number] = _ready(cloud, server, progress)
        if wanted.at_once:
            _spread(cloud, wanted.kinds, servers, progress)
        for number in range(wanted.rounds):
            for outcome in _round(cloud, wanted, servers):
                outcomes.append(outcome)
                progress.say(
                    '%s, round %d: %.1f s, %.0f MB' % (
                        outcome.kind, number + 1, outcome.seconds,
                        outcome.link_bytes / 1e6))
    finally:
        if not wanted.keep:
            for server in servers:
                compute.delete_server(server, force=True)
    return outcomes


def _ready(cloud, server, progress):
    server = instances.wait_active(client.connect(cloud).compute, server)
    host = instances.host_of(cloud, server)
    console.ready(guest.console(host, server.id))
    progress.say('%s: runs on %s, its memory is filled' % (
        server.name, host.name))
    return server


def _spread(cloud, kinds, servers, progress):
    """See to it that not all of them are on the same host."""
    if len({server.compute_host for server in servers}) == 1:
        outcome = migrations.migrate(cloud, kinds[0], servers[0])
        progress.say('%s: moved to %s first' % (
            servers[0].name, outcome.destination))


def _round(cloud, wanted, servers):
    """Yield an Outcome for each server."""
    pairs = tuple(zip(wanted.kinds, servers, strict=True))
    if not wanted.at_once:
        for kind, server in pairs:
            yield migrations.migrate(
                cloud, kind, server,
                wanted.lister if kind == 'page_cache' else None,
                wanted.write)
        return
    with concurrent.futures.ThreadPoolExecutor(len(pairs)) as pool:
        yield from [future.result() for future in [
            pool.submit(migrations.migrate, cloud, kind, server,
                        write=wanted.write)
            for kind, server in pairs]]


def show(outcomes):
    """Return the table, and a line that compares the kinds."""
    text = table.text(
        ('kind', 'from', 'to', 'time s', 'link MB', 'downtime ms',
         'verified MiB', 'wrong pages', 'used'),
        [(one.kind, one.source, one.destination, '%.1f' % one.seconds,
          '%.1f' % (one.link_bytes / 1e6),
          '-' if one.downtime_ms is None else one.downtime_ms,
          one.verified >> 20, one.errors, one.strategy or '-')
         for one in outcomes])
    reasons = dict.fromkeys(
        '%s from %s: %s' % (one.kind, one.source, one.reason)
        for one in outcomes if one.reason and one.kind != 'stock')
    if reasons:
        text += '\n\n' + '\n'.join(reasons)
    for more in _asked(outcomes), disk_table.show(outcomes):
        if more:
            text += '\n\n' + more
    text += '\n\n' + _spreads(outcomes)
    means = {kind: [statistics.fmean(values) for values in zip(*(
        (one.seconds, one.link_bytes) for one in outcomes
        if one.kind == kind), strict=True)]
        for kind in {one.kind for one in outcomes}}
    for kind in instances.KINDS:
        if kind == 'stock' or not {'stock', kind} <= set(means):
            continue
        time_, bytes_ = (100 * ours / stock for ours, stock in zip(
            means[kind], means['stock'], strict=True))
        text += ('\n\n%s took %.0f %% of the time of stock and sent '
                 '%.0f %% of the bytes' % (kind, time_, bytes_))
    return text


def _spreads(outcomes):
    """Return the table of each kind: means, lowest and highest.

    What came of it is compared with what was predicted: by how many per
    cent it is more, or, negative, less.
    """
    rows = []
    for kind in dict.fromkeys(one.kind for one in outcomes):
        ours = [one for one in outcomes if one.kind == kind]
        off = [one.prediction_error for one in ours if one.prediction_error]
        rows.append((
            kind, len(ours), _spread(one.seconds for one in ours),
            _spread(one.link_bytes / 1e6 for one in ours),
            _spread((one.downtime_ms for one in ours
                     if one.downtime_ms is not None), 0),
            _spread(one['time_percent'] for one in off),
            _spread(one['bytes_percent'] for one in off)))
    return table.text(
        ('kind', 'migrations', 'time s', 'link MB', 'downtime ms',
         'time / predicted, %', 'bytes, %'), rows)


def _spread(values, digits=1):
    values = list(values)
    if not values:
        return '-'
    if len(values) == 1:
        return '%.*f' % (digits, values[0])
    return '%.*f (%.*f to %.*f)' % (
        digits, statistics.fmean(values), digits, min(values), digits,
        max(values))


def _asked(outcomes):
    """Return the table of what guests said they cache, '' if none was."""
    asked = [(one, one.page_cache) for one in outcomes
             if one.page_cache is not None
             and one.page_cache['outcome'] != 'skipped']
    if not asked:
        return ''
    text = table.text(
        ('kind', 'from', 'page cache', 'seconds', 'listed pages', 'taken',
         'sent', 'zero', 'from storage'),
        [(one.kind, one.source, cache['outcome'],
          '%.2f' % cache['seconds'], cache['listed_pages'],
          cache['taken_pages'], one.pages.get('peer', '-'),
          one.pages.get('zero', '-'), one.pages.get('storage', '-'))
         for one, cache in asked])
    reasons = dict.fromkeys(
        '%s from %s: %s' % (one.kind, one.source, cache['reason'])
        for one, cache in asked if cache['reason'])
    return '\n'.join([text, *([''] if reasons else []), *reasons])
