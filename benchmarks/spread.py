# SPDX-License-Identifier: Apache-2.0
"""Figures of repeated runs: the median and how far they lie apart."""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import statistics


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median, smallest and largest of n values."""

    median: float
    low: float
    high: float
    n: int

    def show(self, digits: int = 2) -> str:
        """'1.23 (1.20-1.31)'; the median alone if there is one value."""
        text = f'{self.median:.{digits}f}'
        if self.n > 1:
            text += f' ({self.low:.{digits}f}-{self.high:.{digits}f})'
        return text


def of(values: Iterable[float | None]) -> Spread | None:
    """Spread of what is known, None if nothing is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return Spread(
        statistics.median(known), min(known), max(known), len(known)
    )


def ratios(
    values: Sequence[float | None], references: Sequence[float | None]
) -> Spread | None:
    """Spread of value / reference, each with the one run beside it.

    The two of a pair ran one after the other, so what slows the machine
    down for a while changes their quotient least.
    """
    return of(
        value / reference
        for value, reference in zip(values, references, strict=False)
        if value is not None and reference
    )


def differences(
    values: Sequence[float | None], references: Sequence[float | None]
) -> Spread | None:
    """Spread of value - reference, pair by pair."""
    return of(
        value - reference
        for value, reference in zip(values, references, strict=False)
        if value is not None and reference is not None
    )


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """About 95 % confidence for the median, from order statistics.

    Nothing is assumed about how the values are distributed.  None for
    fewer than six, of which no two bracket the median so surely.
    """
    n = len(values)
    if n < 6:
        return None
    # Binomial(n, 1/2), normal approximation, rounded outwards.
    rank = max(int((n - 1.96 * n**0.5) / 2), 0)
    ordered = sorted(values)
    return ordered[rank], ordered[n - 1 - rank]
