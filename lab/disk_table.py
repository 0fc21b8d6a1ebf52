# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of the disks of block migrations came from."""

from testkit import table

#: In the order in which they are shown.
_SOURCES = ('zero', 'kept', 'absent', 'local', 'image', 'image_store',
            'neighbour', 'source')


def show(outcomes):
    """Return the table, '' if no migration has copied a disk.

    :param outcomes: migrations.Outcomes
    """
    found = [(one, disk) for one in outcomes for disk in one.disks]
    if not found:
        return _compared(outcomes)
    names = [name for name in _SOURCES if any(
        name in disk['sources'] for _, disk in found)]
    names += sorted({name for _, disk in found
                     for name in disk['sources']} - set(names))
    text = table.text(
        ('kind', 'from', 'disk', 'data MB', *names, 'mirrored MB',
         'building s'),
        [(one.kind, one.source, disk['target'], _mb(disk['data']),
          *(_mb(disk['sources'].get(name)) for name in names),
          _mb(disk['mirrored']) if disk['mirrored'] is not None else 'all',
          '-' if disk['build_seconds'] is None
          else '%.1f' % disk['build_seconds']) for one, disk in found])
    reasons = dict.fromkeys(
        'disk %s from %s: %s' % (disk['target'], one.source, disk['reason'])
        for one, disk in found if disk['reason'])
    reasons |= dict.fromkeys(
        'images for disk %s from %s: %s' % (
            disk['target'], one.source, disk['image_store'])
        for one, disk in found if disk.get('image_store'))
    return '\n\n'.join(filter(None, (
        text, '\n'.join(reasons), _compared(outcomes))))


def _compared(outcomes):
    total = sum(one.compared for one in outcomes)
    problems = [problem for one in outcomes for problem in one.differing]
    if not total and not problems:
        return ''
    return '%s of disks were compared with the source\'s: %s' % (
        _mb(total) + ' MB', '; '.join(problems) or 'all equal')


def _mb(count):
    return '-' if count is None else '%.1f' % (count / 1e6)


def wrong(outcome, settings):
    """Yield what a migration of disks should not be.

    :param outcome: migrations.Outcome
    :param settings: Settings of the lab
    """
    if settings.profile != 'local':
        return
    yield from outcome.differing
    for disk in outcome.disks:
        if disk['mirrored'] is None and not disk['reason']:
            yield 'disk %s was mirrored in full, and its report does not ' \
                'have the reason' % disk['target']


def unbuilt(outcomes, settings):
    """Yield that no disk was built, if it would have paid.

    An instance that comes back finds at least its image.

    :param outcomes: of both directions
    """
    if not settings.builds_disks or not settings.flat:
        return
    ours = [one for one in outcomes if one.kind != 'stock']
    if ours and all(disk['mirrored'] is None
                    for one in ours for disk in one.disks):
        yield 'no disk was built: %s' % ('; '.join(dict.fromkeys(
            disk['reason'] for one in ours for disk in one.disks))
            or 'the reports have no disks')
