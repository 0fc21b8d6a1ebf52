# SPDX-License-Identifier: Apache-2.0
"""From QMP objects to frozen dataclasses, trusting nothing.

The peer of a migration, and so its QEMU, may be hostile or of another
version.  Fields that are not known are ignored, fields that are missing
take the dataclass's default, and a value of the wrong type or range is
an error that names it.
"""

import collections.abc
import dataclasses
import typing

from nova_dedup_migrate import values
from nova_dedup_migrate.hypervisor import errors

#: Longest text taken over, in characters; the rest is cut off.
MAX_TEXT = 1024
#: Counters are 64 bit in QEMU.
MAX_COUNT = 2 ** 64 - 1


def mapping(value: object, field: str) -> dict:
    """Return value if it is a JSON object."""
    if not isinstance(value, dict):
        raise errors.MalformedReply(field=field, value=_short(value),
                                    expected='an object')
    return value


def count(value: typing.Any, field: str) -> int:
    """Return value if it is an unsigned 64 bit integer."""
    if not values.is_count(value, MAX_COUNT):
        raise errors.MalformedReply(field=field, value=_short(value),
                                    expected='an unsigned 64 bit integer')
    return value


def number(value: object, field: str) -> float:
    """Return value as a finite float, not negative."""
    result = values.finite(value)
    if result is None:
        raise errors.MalformedReply(field=field, value=_short(value),
                                    expected='a finite number, 0 or more')
    return result


def flag(value: object, field: str) -> bool:
    """Return value if it is a JSON boolean."""
    if not isinstance(value, bool):
        raise errors.MalformedReply(field=field, value=_short(value),
                                    expected='a boolean')
    return value


def text(value: object, field: str) -> str:
    """Return value if it is a string, cut and safe for a terminal."""
    if not isinstance(value, str):
        raise errors.MalformedReply(field=field, value=_short(value),
                                    expected='a string')
    return ''.join(c if c.isprintable() else '?' for c in value[:MAX_TEXT])


_DECODERS: dict[typing.Any, collections.abc.Callable] = {
    int: count, float: number, bool: flag, str: text, int | None: count,
    str | None: text}


def dataclass(cls: type, reply: object, path: str,
              **given: typing.Any) -> typing.Any:
    """Make a cls of the fields of reply that cls has.

    Names differ only in '_' for '-'.  Fields in given are not looked
    up.  path names reply in errors.
    """
    reply = mapping(reply, path)
    found: dict[str, typing.Any] = dict(given)
    for field in dataclasses.fields(cls):
        name = field.name.replace('_', '-')
        if field.name not in given and name in reply:
            found[field.name] = _DECODERS[field.type](
                reply[name], '%s.%s' % (path, name))
    return cls(**found)


def _short(value: object) -> str:
    return repr(value)[:80] if not isinstance(value, str) else value[:80]
