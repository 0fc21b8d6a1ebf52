# SPDX-License-Identifier: Apache-2.0
"""Why a plan is as it is, in sentences for operators."""

from collections.abc import Sequence

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import measured_downtime
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units

_ENDS = {
    'post-copy': 'The guest writes to memory too fast for pre-copy; the '
                 'migration ends in post-copy.',
    'aborted': 'The guest writes to memory too fast; the completion '
               'timeout of Nova will abort the migration. Permit post-copy '
               'or auto-converge, or migrate when the guest does less.',
    'forced': 'The guest writes to memory too fast; the completion timeout '
              'of Nova will force the migration to complete, with a long '
              'downtime.',
    'never': 'The guest writes to memory too fast and no timeout is set; '
             'the migration will not end. Permit post-copy or '
             'auto-converge, or migrate when the guest does less.',
}
_MOST_DISKS = 8


def explain(known: facts.Facts, disks: Sequence[facts.Disk],
            stock: plan.Prediction, prediction: plan.Prediction | None,
            decision: str, threads: int = 0) -> tuple[str, ...]:
    """Return a tuple of sentences.

    :param known: normal Facts
    :param disks: those of known.disks that can be read from
    :param stock: plan.Prediction of stock
    :param prediction: of leaving out the pages that disks hold, or of
        compressing what is sent; None if that was not considered
    :param decision: the last sentence
    :param threads: that compress in this prediction, 0: none
    """
    sentences = [_strategy(known.options), _guest(known)]
    listed = known.guest.map_pages - known.guest.index_pages
    if listed > 0:
        sentences.append('The guest has listed %s of page cache.'
                         % units.size(listed * known.guest.page_size))
    if known.guest.index_pages:
        sentences.append('%s of its memory was found on its disks.'
                         % units.size(known.guest.index_pages
                                      * known.guest.page_size))
    sentences.append(_link(known))
    sentences += _working_set(known)
    sentences += _disks(known, disks)
    sentences.append('An ordinary migration: ' + _expected(stock))
    sentences += _end(stock)
    if prediction is not None:
        sentences.append('%s: %s' % (_doing(known, disks, threads),
                                     _expected(prediction)))
        if prediction.end != stock.end:
            sentences += _end(prediction)
    return (*sentences, decision)


def _doing(known: facts.Facts, disks: Sequence[facts.Disk],
           threads: int) -> str:
    parts = []
    if disks:
        parts.append('Leaving out %s that the destination reads from '
                     'storage' % units.size(
                         predict.duplicate_bytes(known, disks)))
    if threads:
        parts.append('%s with %d thread%s'
                     % ('compressing the rest' if disks
                        else 'Compressing what is sent', threads,
                        's' if threads > 1 else ''))
    return ' and '.join(parts)


def _strategy(options: facts.Options) -> str:
    return 'Strategy %s, from %s.' % (options.strategy,
                                      options.strategy_source or 'nova.conf')


def _guest(known: facts.Facts) -> str:
    guest = known.guest
    in_use = guest.resident if guest.in_use is None else guest.in_use
    duplicate = min(guest.hint_pages * guest.page_size, in_use)
    valid = ('' if guest.valid_share is None else
             ' (a sample: %s of it unchanged since)'
             % units.percent(guest.valid_share))
    return ('The guest uses %s of its %s of memory; %s of that came from or '
            'went to its disks%s. It writes to memory at %s.'
            % (units.size(in_use), units.size(guest.memory),
               units.size(duplicate), valid, units.rate(guest.dirty_rate))
            + _compressed(guest))


def _compressed(guest: facts.Guest) -> str:
    if guest.compressed_share is None:
        return ''
    return (' A sample of the memory that is not on disk compresses to %s.'
            % units.percent(guest.compressed_share))


def _link(known: facts.Facts) -> str:
    link = known.link
    sources = [word for word, value in (
        ('live_migration_bandwidth', link.configured),
        ('measured', link.measured),
        ('link_bandwidth', link.host_limit)) if value]
    if link.sharers:
        sources.append('shared with %d other migrations' % link.sharers
                       if link.sharers > 1
                       else 'shared with another migration')
    return ('The link carries %s (%s).'
            % (units.rate(predict.link_rate(known)),
               ', '.join(sources) or 'an assumption: it was not measured '
               'and link_bandwidth is not set'))


def _working_set(known: facts.Facts) -> list[str]:
    expected = measured_downtime.expect(known)
    if expected is None:
        return []
    written = ', '.join(
        '%s in %.0f s' % (units.size(one.bytes), one.seconds)
        for one in sorted(known.guest.windows, key=lambda one: one.seconds))
    _, found = expected
    return ['The guest was seen to write to %s: without deduplication this '
            'link leads to %d rounds and a downtime of %s%s.'
            % (written, found.rounds, units.milliseconds(found.downtime),
               '' if found.converges else ', which is above the limit')]


def _disks(known: facts.Facts, usable: Sequence[facts.Disk]) -> list[str]:
    sentences = []
    for disk in known.disks[:_MOST_DISKS]:
        if disk in usable:
            where = ('both hosts open it' if disk.copy == facts.SHARED
                     else 'the destination has its own copy')
            how_fast = ('the destination reads it at '
                        + units.rate(disk.storage_rate)
                        if disk.storage_rate else 'the rate at which the '
                        'destination reads it was not measured')
            if disk.storage_rate and disk.scattered_rate:
                how_fast += ', scattered blocks at ' + units.rate(
                    disk.scattered_rate)
            if disk.hint_pages is not None:
                how_fast += '; %s of memory are from it' % units.size(
                    disk.hint_pages * known.guest.page_size)
            sentences.append('Disk %s: %s; %s.'
                             % (disk.target, where, how_fast))
        else:
            sentences.append('Disk %s is not used: %s.'
                             % (disk.target, disk.reason or 'the destination '
                                'does not have its bytes'))
    if len(known.disks) > _MOST_DISKS:
        sentences.append('And %d more disks.'
                         % (len(known.disks) - _MOST_DISKS))
    return sentences


def _expected(prediction: plan.Prediction) -> str:
    if not prediction.completes:
        return 'it is not expected to complete.'
    return ('%s, %s on the link, downtime %s.'
            % (units.band(prediction.time, units.duration),
               units.size(prediction.bytes.likely),
               units.milliseconds(prediction.downtime.likely)))


def _end(prediction: plan.Prediction) -> list[str]:
    sentence = _ENDS.get(prediction.end)
    return [sentence] if sentence else []


def chosen(strategy: str, gain: float, stock: plan.Prediction,
           prediction: plan.Prediction, threads: int = 0) -> str:
    """Return the sentence about the strategy that was chosen.

    :param strategy: of the plan
    :param gain: see predict.saves
    :param threads: that compress, 0: none
    """
    if stock.completes:
        why = 'It is expected to save %s of the time.' % units.percent(gain)
    elif prediction.completes:
        why = 'An ordinary migration is not expected to complete.'
    else:
        why = ('An ordinary migration is not expected to complete either, '
               'and this one has less to send.')
    also = (' with compression' if threads and strategy != plan.COMPRESS
            else '')
    return 'Chosen: %s%s. %s' % (strategy, also, why)
