# SPDX-License-Identifier: Apache-2.0
"""What the guest's program reports each second."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class GuestReport:
    """The report of one second; see src/guest.h.

    passes, errors, seq: counts; verified, written: bytes;
    mono_ms, gap_ms, max_gap_ms: ms of the guest's clock;
    error: the first mismatch the guest has found, None: none.
    """

    seq: int = 0
    mode: str = ''
    passes: int = 0
    verified: int = 0
    errors: int = 0
    written: int = 0
    mono_ms: int = 0
    gap_ms: float = 0.0
    max_gap_ms: float = 0.0
    error: str | None = None

    @classmethod
    def from_message(cls, message: dict) -> 'GuestReport | None':
        """The report in a message, None if it has wrong fields."""
        fields = {}
        for field in dataclasses.fields(cls):
            value = message.get(field.name, field.default)
            if field.name == 'error':
                good = value is None or isinstance(value, str)
            elif field.name == 'mode':
                good = isinstance(value, str)
            else:
                good = not isinstance(value, str)
                if isinstance(field.default, int) and good:
                    good = value == int(value)
            if not good:
                return None
            fields[field.name] = value
        return cls(**fields)
