# SPDX-License-Identifier: Apache-2.0
"""Reads a JSON object of which one member is too long for memory.

The text is read in pieces.  Every value is decoded on its own and is no
longer than PIECE; elements of long lists are handed out one after the
other.  The whole text has a limit, too.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from collections.abc import Iterator
import json
import re
from typing import Any
from typing import NoReturn

#: Characters of one value.
PIECE = 1 << 20
#: Bytes to read at a time.
_READ = 1 << 18

_BLANK = re.compile(r'[ \t\n\r]*')
_DIGESTS = re.compile(r'(?:[ \t\n\r]*"[0-9a-f]{64}"[ \t\n\r]*,)+')
_QUOTES = {ord('"'): None, ord(','): None}


class Malformed(ValueError):
    """The text is no JSON as it is expected here; reason in the message."""


def _refuse_constant(name: str) -> NoReturn:
    raise Malformed('%s is no number' % name)


def _refuse_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Malformed('a name occurs twice in an object')
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant,
                            object_pairs_hook=_refuse_repetition)


class JsonStream:
    """A text that is read forwards.

    :param read: returns at most as many bytes as it is given, b'' at the
        end
    :param limit: bytes of the whole text
    """

    def __init__(self, read: Callable[[int], bytes], limit: int) -> None:
        self._read = read
        self._left = limit
        self._limit = limit
        self._decode = codecs.getincrementaldecoder('utf-8')().decode
        self._text = ''
        self._at = 0
        self._ended = False

    def members(self) -> Iterator[str]:
        """Yield the names of the members of the object.

        The caller takes the value of each by value(), elements() or
        digests() before the next one.
        """
        self._expect('{')
        if self._peek() == '}':
            self._at += 1
        else:
            seen = set()
            while True:
                name = self.value()
                if not isinstance(name, str):
                    raise Malformed('the name of a member is no text')
                if name in seen or len(seen) >= 1000:
                    raise Malformed('the member %.80r occurs twice, or there '
                                    'are too many' % name)
                seen.add(name)
                self._expect(':')
                yield name
                if self._next(',}') == '}':
                    break
        if self._peek():
            raise Malformed('there is more after the object')

    def elements(self) -> Iterator[Any]:
        """Yield the elements of a list."""
        self._expect('[')
        if self._peek() == ']':
            self._at += 1
            return
        while True:
            yield self.value()
            if self._next(',]') == ']':
                return

    def digests(self) -> Iterator[bytes]:
        """Yield the SHA-256 of a list of them, many at a time.

        :returns: bytes of a length that is a multiple of 32
        """
        self._expect('[')
        if self._peek() == ']':
            self._at += 1
            return
        while True:
            self._peek()
            found = _DIGESTS.match(self._text, self._at)
            if found is not None:
                self._at = found.end()
                yield bytes.fromhex(found.group().translate(_QUOTES))
                continue
            one = self.value()
            if not isinstance(one, str) or not re.fullmatch('[0-9a-f]{64}',
                                                            one):
                raise Malformed('%.80r is no SHA-256' % (one,))
            yield bytes.fromhex(one)
            if self._next(',]') == ']':
                return

    def value(self) -> Any:
        """Return the next value."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                used = end - self._at
                # A number may go on in what has not been read.
                if end < len(self._text) or not self._more():
                    self._at += used
                    return value
            except RecursionError:
                raise Malformed('it is nested too deeply') from None
            except Malformed:
                raise
            except ValueError as error:
                if not self._more():
                    raise Malformed('it is no JSON: %s' % error) from None
            if len(self._text) - self._at > PIECE + _READ:
                raise Malformed('a value is longer than %d characters, or '
                                'is no JSON' % PIECE)

    def _next(self, allowed: str) -> str:
        character = self._peek()
        if not character or character not in allowed:
            raise Malformed('expected %s, found %.1r'
                            % (' or '.join(allowed), character))
        self._at += 1
        return character

    def _expect(self, character: str) -> None:
        self._next(character)

    def _peek(self) -> str:
        """Return the next character that is not blank, '' at the end."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ''

    def _more(self) -> bool:
        """Read on; return whether there was more."""
        if self._ended:
            return False
        data = self._read(_READ)
        if len(data) > _READ:
            raise Malformed('the store returned more than it was to read')
        self._left -= len(data)
        if self._left < 0:
            raise Malformed('it is longer than %d bytes' % self._limit)
        self._ended = not data
        try:
            text = self._decode(data, self._ended)
        except UnicodeDecodeError:
            raise Malformed('it is no UTF-8') from None
        self._text = self._text[self._at:] + text
        self._at = 0
        return not self._ended
