# SPDX-License-Identifier: Apache-2.0
"""The picture: bytes over time, by the path they took."""

from pathlib import Path

from benchmarks import run

_MIB_PER_PAGE = 4096 / (1 << 20)
_PATHS = (
    ('peer', 'sent by the source', '#4c78a8'),
    ('storage', 'read from storage by the destination', '#54a24b'),
    ('zero', 'zero pages', '#d4d4d4'),
)


def draw(results: list[run.Result], path: Path) -> None:
    """Write a PNG with one panel for each run, on common axes."""
    # Takes half a second to import, so not at the top.
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1,
        len(results),
        sharex=True,
        sharey=True,
        figsize=(5.2 * len(results) + 1, 4.2),
        squeeze=False,
    )
    for panel, result in zip(panels[0], results, strict=True):
        samples = result.samples
        times = [sample.time_s for sample in samples]
        panel.stackplot(
            times,
            *(
                [getattr(s, name) * _MIB_PER_PAGE for s in samples]
                for name, _, _ in _PATHS
            ),
            labels=[label for _, label, _ in _PATHS],
            colors=[color for _, _, color in _PATHS],
        )
        panel.plot(
            times,
            [s.link_bytes / (1 << 20) for s in samples],
            color='black',
            linewidth=1.2,
            label='bytes on the link',
        )
        title = f'{result.name}: {result.link_bytes / 1e6:.0f} MB'
        if result.total_time_s is not None:
            title += f' in {result.total_time_s:.1f} s'
        panel.set_title(title if result.converged else title + ', gave up')
        panel.set_xlabel('s since the migration began')
        panel.margins(x=0)
    panels[0][0].set_ylabel('MiB')
    panels[0][0].legend(loc='upper left', fontsize='small')
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
