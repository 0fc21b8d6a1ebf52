# SPDX-License-Identifier: Apache-2.0
"""make demo: the same guest migrated by stock QEMU and by ours.

Stock twice: as it is, and with multifd and its compression, the strongest
rival; ours leaves duplicates out and compresses the rest.  With --disk
it is the disk that is mirrored: demo_disk.py.
"""

import json
from pathlib import Path
import shutil
import sys
import warnings

from benchmarks import chart
from benchmarks import display
from benchmarks import options as demo_options
from benchmarks import report
from benchmarks import run
from guests.errors import GuestError
from guests.synthetic import image
from nova_dedup_migrate.hypervisor import errors
from testkit import qemus


def plan_runs(options, given, directory: Path) -> list[run.Plan]:
    """The runs that are asked for, with the QEMU of each side."""
    peer = options.stock_peer
    found = {}

    def binary(kind):
        if kind not in found:
            found[kind] = qemus.find(
                kind, getattr(given, f'{kind}_binary'), small=True
            )
        return found[kind]

    guest = image.guest_image()
    plans = []
    for number, name in enumerate(options.runs):
        ours = 'patched' if name == 'dedup' else 'stock'
        source = binary('stock' if peer == 'source' else ours)
        destination = binary('stock' if peer == 'destination' else ours)
        plans.append(
            run.Plan(
                name=name,
                source_binary=source,
                destination_binary=destination,
                qemu_img=qemus.tool(source, 'qemu-img'),
                dedup=name == 'dedup',
                image=guest,
                options=options.rival() if name == 'zstd' else options,
                directory=directory / name,
                # Both guests are alike; the limit is for the last run.
                analyse=number == len(options.runs) - 1,
            )
        )
    return plans


def how_compiled(binaries: set[Path]) -> str:
    """A sentence on whether the QEMUs are compiled alike."""
    facts = [qemus.compiled(binary) for binary in sorted(binaries)]
    if not all(facts):
        return (
            'At least one QEMU was not compiled by qemu/build: how the two '
            'were compiled may differ, and with it their speed.'
        )
    inputs = {
        json.dumps([each.get(k) for k in ('version', 'source', 'options')])
        for each in facts
    }
    if len(inputs) > 1:
        return (
            'The QEMUs were compiled from different sources or with '
            'different options, which may make a difference.'
        )
    options = facts[0]['options']
    level = '-O1' if '--extra-cflags=-O1' in options else '-O2'
    return (
        f'QEMU {facts[0]["version"]}: stock and patched were compiled here '
        'from the same source, with the same compiler and the same options, '
        f'{level} among them.'
    )


def demo(options, given) -> int:
    """Run it all; returns the exit status."""
    directory = given.output.absolute()
    for name in demo_options.RUNS:
        shutil.rmtree(directory / name, ignore_errors=True)
    results = []
    plans = plan_runs(options, given, directory)
    for plan in plans:
        show = display.Display(plan.name)
        show.note('booting the guest and filling its memory')
        result = run.Run(plan, show.show, show.note).run()
        if result.reason:
            show.note(f'ordinary migration: {result.reason}')
        results.append(result)
    summary = report.build(results, options)
    summary['qemu'] = how_compiled(
        {one.source_binary for one in plans}
        | {one.destination_binary for one in plans}
    )
    (directory / 'report.json').write_text(
        json.dumps(summary, indent=2) + '\n'
    )
    (directory / 'details.json').write_text(
        json.dumps(report.details(results)) + '\n'
    )
    chart.draw(results, directory / 'bytes-over-time.png')
    print(
        f'\n{report.table(summary)}\n\n{summary["qemu"]}\n'
        f'In {directory}: report.json, '
        'details.json, bytes-over-time.png and the logs.'
    )
    problems = report.failures(results)
    for problem in problems:
        print(f'demo: {problem}', file=sys.stderr)
    return 1 if problems else 0


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if '--disk' in words:
        # It needs more than the environment of this demonstration has, and
        # what that imports warns of its own future.
        warnings.simplefilter('ignore')
        from benchmarks import demo_disk

        return demo_disk.main(words)
    options, given = demo_options.parse(words)
    try:
        given.output.mkdir(parents=True, exist_ok=True)
        return demo(options, given)
    except (GuestError, errors.HypervisorError) as error:
        print(f'\ndemo: {error}', file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f'\ndemo: {error.filename}: {error.strerror}', file=sys.stderr
        )
        return 1
    except KeyboardInterrupt:
        print('\ndemo: interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
