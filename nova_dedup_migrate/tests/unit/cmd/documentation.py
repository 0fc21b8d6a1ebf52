# SPDX-License-Identifier: Apache-2.0
"""The example output in doc/source/reference/cli and README.rst.

It is the output of the commands for reports.samples.documented(), and for
the disks that _write_disks() makes.  After a change write it again with

    python -m nova_dedup_migrate.tests.unit.cmd.documentation
"""

import contextlib
import io
import pathlib
import random
import re
import tempfile

from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.tests.unit.reports import samples

ROOT = pathlib.Path(__file__).parents[4]
DIRECTORY = ROOT / 'doc/source/reference/cli'
README = ROOT / 'README.rst'
_DISKS = ('disks/base', 'disks/web', 'disks/database')
#: Not what reading them took, which is different each time.
_COLUMNS = ('-c', 'disk', '-c', 'size', '-c', 'zeros', '-c', 'repeated',
            '-c', 'base', '-c', 'web', '-c', 'database')
#: Arguments of the command by file name.
EXAMPLES = {
    'list.txt': ('report', 'list', '-c', 'started', '-c', 'destination',
                 '-c', 'outcome', '-c', 'strategy', '-c', 'time',
                 '-c', 'link', '-c', 'downtime'),
    'rounds.txt': ('report', 'rounds', '-c', 'round', '-c', 'time',
                   '-c', 'peer_pages', '-c', 'storage_pages',
                   '-c', 'transferred', '-c', 'remaining'),
    'show.txt': ('report', 'show', '--max-width', '79',
                 samples.MIGRATION),
    'similarity.txt': ('similarity', *_DISKS, *_COLUMNS),
    'similarity.json': ('similarity', *_DISKS, *_COLUMNS, '-f', 'json'),
}
#: The fields in the README.
FIELDS = ('destination', 'outcome', 'strategy_used', 'plan',
          'prediction_error', 'bytes', 'link_bytes', 'total_time',
          'downtime_ms')
_IN_README = re.compile(r'(?<=    \$ nova-dedup-migrate report show\n)'
                        r'(?:    [+|].*\n)+')


def outputs():
    """Return the current output: text by file name, and of README."""
    with tempfile.TemporaryDirectory() as directory:
        conf = pathlib.Path(directory) / 'nova.conf'
        conf.write_text('[DEFAULT]\nstate_path = %s\n' % directory)
        samples.write(store.OperationStore(
            pathlib.Path(directory) / 'dedup_migrate/operations', 10),
            samples.documented())
        _write_disks(pathlib.Path(directory))
        made = {name: _output(conf, [
            directory + '/' + one if one in _DISKS else one
            for one in arguments]) for name, arguments in EXAMPLES.items()}
        arguments = ['report', 'show', '--max-width', '75']
        for field in FIELDS:
            arguments += ['-c', field]
        return made, _output(conf, arguments)


def _write_disks(directory):
    """Write an image, and two disks of servers that were made of it."""
    source = random.Random(1)
    base, web, logs, data = (
        [source.randbytes(blocks.BLOCK) for _ in range(count)]
        for count in (320, 80, 16, 240))
    zero = bytes(blocks.BLOCK)
    (directory / 'disks').mkdir()
    for name, content in zip(_DISKS, (
            base, base[:300] + web + 2 * logs,
            base[:280] + web[:20] + data), strict=True):
        (directory / name).write_bytes(b''.join(
            content + (640 - len(content)) * [zero]))


def _output(conf, arguments):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main.main(['--config-file', str(conf), *arguments])
    if status:
        raise RuntimeError('%s returned %d' % (' '.join(arguments), status))
    return out.getvalue()


def readme(text, example):
    """Return the text of README.rst with the example in it."""
    indented = ''.join('    %s\n' % line for line in example.splitlines())
    made, count = _IN_README.subn(lambda match: indented, text)
    if count != 1:
        raise RuntimeError('README.rst has %d examples of report show'
                           % count)
    return made


def write():
    """Write the files and README.rst."""
    made, example = outputs()
    for name, text in made.items():
        (DIRECTORY / name).write_text(text)
    README.write_text(readme(README.read_text(), example))


if __name__ == '__main__':
    write()
