# SPDX-License-Identifier: Apache-2.0
"""Why a plan is as it is, in sentences for who runs the cloud."""

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units

_ENDS = {
    'post-copy': 'Memory changes too fast to be copied beforehand; it ends '
                 'in post-copy.',
    'aborted': 'Memory changes too fast; the completion timeout of Nova '
               'will abort it.',
    'forced': 'Memory changes too fast; the completion timeout of Nova '
              'will force it to complete, with a long pause.',
    'never': 'Memory changes too fast; nothing will end it.',
}
_MOST_DISKS = 8


def explain(known, disks, stock, prediction, decision):
    """Return a tuple of sentences.

    :param known: normal Facts
    :param disks: of known.disks, those that can be read from
    :param stock: plan.Prediction of stock
    :param prediction: of leaving out what disks hold; None if that was
        not considered
    :param decision: the last sentence
    """
    sentences = [_asked(known.options), _guest(known)]
    if known.guest.map_pages:
        sentences.append('The guest has listed %s of page cache.'
                         % units.size(known.guest.map_pages
                                      * known.guest.page_size))
    sentences.append(_link(known))
    sentences += _disks(known, disks)
    sentences.append('An ordinary migration: ' + _expected(stock))
    sentences += _end(stock)
    if prediction is not None:
        duplicate = predict.duplicate_bytes(known, disks)
        sentences.append(
            'Leaving out %s that the destination reads from storage: %s'
            % (units.size(duplicate), _expected(prediction)))
        if prediction.end != stock.end:
            sentences += _end(prediction)
    return (*sentences, decision)


def _asked(options):
    return 'Strategy %s, from %s.' % (options.strategy,
                                      options.strategy_source or 'nova.conf')


def _guest(known):
    guest = known.guest
    in_use = guest.resident if guest.in_use is None else guest.in_use
    duplicate = min(guest.hint_pages * guest.page_size, in_use)
    return ('The guest uses %s of its %s of memory; %s of that came from or '
            'went to its disks. It writes to memory at '
            '%s.'
            % (units.size(in_use), units.size(guest.memory),
               units.size(duplicate), units.rate(guest.dirty_rate)))


def _link(known):
    link = known.link
    sources = [word for word, value in (
        ('live_migration_bandwidth', link.configured),
        ('measured', link.measured),
        ('link_bandwidth', link.host_limit)) if value]
    return ('The link carries %s (%s).'
            % (units.rate(predict.link_rate(known)),
               ', '.join(sources) or 'assumed: nothing is known about it'))


def _disks(known, usable):
    sentences = []
    for disk in known.disks[:_MOST_DISKS]:
        if disk in usable:
            where = ('both hosts open it' if disk.copy == facts.SHARED
                     else 'the destination has its own copy')
            how_fast = ('reads it at ' + units.rate(disk.storage_rate)
                        if disk.storage_rate
                        else 'was not asked how fast it reads it')
            sentences.append('Disk %s: %s; the destination %s.'
                             % (disk.target, where, how_fast))
        else:
            sentences.append('Disk %s is not used: %s.'
                             % (disk.target, disk.reason or 'the destination '
                                'does not have its bytes'))
    if len(known.disks) > _MOST_DISKS:
        sentences.append('And %d more disks.'
                         % (len(known.disks) - _MOST_DISKS))
    return sentences


def _expected(prediction):
    if not prediction.completes:
        return 'it is not expected to complete.'
    return ('%s, %s on the link, a pause of %s.'
            % (units.band(prediction.time, units.duration),
               units.size(prediction.bytes.likely),
               units.pause(prediction.downtime.likely)))


def _end(prediction):
    sentence = _ENDS.get(prediction.end)
    return [sentence] if sentence else []


def chosen(strategy, gain, stock, prediction):
    """Return the sentence for what is left out.

    :param strategy: of the plan
    :param gain: see predict.saves
    """
    if stock.completes:
        why = 'It is expected to save %s of the time.' % units.percent(gain)
    elif prediction.completes:
        why = 'An ordinary migration is not expected to complete.'
    else:
        why = ('An ordinary migration is not expected to complete either, '
               'and this one has less to send.')
    return 'Chosen: %s. %s' % (strategy, why)
