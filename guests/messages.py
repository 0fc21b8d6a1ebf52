# SPDX-License-Identifier: Apache-2.0
"""Reads what programs in guests send.  It is not to be trusted: lines and
numbers are capped, types are checked, the rest is dropped."""

import json

LINE_LIMIT = 4096

_NUMBER_LIMIT = 1 << 63
_TEXT_LIMIT = 300
_TYPES = ('ready', 'report', 'reply', 'beat', 'fatal')


def parse_line(line: bytes) -> dict | None:
    """A flat message of strings, booleans and numbers >= 0, or None."""
    if len(line) > LINE_LIMIT or not line.startswith(b'{'):
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get('type') not in _TYPES:
        return None
    for value in message.values():
        if isinstance(value, str):
            if len(value) > _TEXT_LIMIT or not value.isprintable():
                return None
        elif isinstance(value, int | float):
            # Neither infinity nor NaN passes this.
            if not 0 <= value < _NUMBER_LIMIT:
                return None
        else:
            return None
    return message


class LineParser:
    """Turns the bytes of a channel into messages.

    A line that is cut, as happens to one a migration interrupts, or too
    long, is dropped.
    """

    def __init__(self) -> None:
        self._rest = b''
        self._skipping = False

    def feed(self, data: bytes) -> list[dict]:
        messages = []
        lines = (self._rest + data).split(b'\n')
        self._rest = lines.pop()
        for line in lines:
            message = None if self._skipping else parse_line(line.strip())
            self._skipping = False
            if message is not None:
                messages.append(message)
        if len(self._rest) > LINE_LIMIT:
            self._rest = b''
            self._skipping = True
        return messages
