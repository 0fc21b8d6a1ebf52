# SPDX-License-Identifier: Apache-2.0
"""Fields of versioned objects that check their values.

Those of oslo.versionedobjects convert ('5' is an integer, 5 is a string)
and have no limits.  These do neither: what has the wrong type or is too
long or out of range is a ValueError that names the field.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import Any
from typing import NoReturn

from oslo_versionedobjects import fields

from nova_dedup_migrate import values

#: Offsets and sizes are signed 64 bit in Linux.
MAX_OFFSET = 2 ** 63 - 1
#: Counters are unsigned 64 bit in QEMU.
MAX_COUNT = 2 ** 64 - 1

UUID = r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'


def _refuse(attr: str, expected: str, value: Any) -> NoReturn:
    raise ValueError('%s is %.80r, expected %s' % (attr, value, expected))


class _Text(fields.FieldType):
    def __init__(self, limit: int, pattern: str | None) -> None:
        self._limit = limit
        self._pattern = None if pattern is None else re.compile(pattern)

    def coerce(self, obj: Any, attr: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > self._limit:
            _refuse(attr, 'a text of at most %d characters' % self._limit,
                    value)
        if self._pattern is not None and not self._pattern.fullmatch(value):
            _refuse(attr, 'a text like %s' % self._pattern.pattern, value)
        if not value.isprintable():
            _refuse(attr, 'printable characters', value)
        return value


class _Secret(_Text):
    """Neither errors nor repr() of the object show the value."""

    def coerce(self, obj: Any, attr: str, value: Any) -> str:
        try:
            return super().coerce(obj, attr, value)
        except ValueError:
            raise ValueError('%s is not of the form that is expected'
                             % attr) from None

    def stringify(self, value: Any) -> str:
        return "'***'"


class _Count(fields.FieldType):
    def __init__(self, limit: int) -> None:
        self._limit = limit

    def coerce(self, obj: Any, attr: str, value: Any) -> int:
        if not values.is_count(value, self._limit):
            _refuse(attr, 'an integer of 0 to %d' % self._limit, value)
        return value


class _Number(fields.FieldType):
    def coerce(self, obj: Any, attr: str, value: Any) -> float:
        result = values.finite(value)
        if result is None:
            _refuse(attr, 'a finite number, 0 or more', value)
        return result


class _Flag(fields.FieldType):
    def coerce(self, obj: Any, attr: str, value: Any) -> bool:
        if not isinstance(value, bool):
            _refuse(attr, 'a boolean', value)
        return value


class _List(fields.List):
    def __init__(self, element_type: fields.FieldType, limit: int) -> None:
        super().__init__(element_type)
        self._limit = limit

    def _check(self, attr: str, value: Any) -> list | tuple:
        if not isinstance(value, (list, tuple)) or len(value) > self._limit:
            _refuse(attr, 'a list of at most %d' % self._limit, value)
        return value

    def coerce(self, obj: Any, attr: str, value: Any) -> list:
        return super().coerce(obj, attr, self._check(attr, value))

    def from_primitive(self, obj: Any, attr: str, value: Any) -> list:
        return super().from_primitive(obj, attr, self._check(attr, value))


class TextField(fields.AutoTypedField):
    """Printable text.

    :param limit: most characters
    :param pattern: regular expression of the whole text
    """

    def __init__(self, limit: int, pattern: str | None = None,
                 **kwargs: Any) -> None:
        self.AUTO_TYPE = _Text(limit, pattern)
        super().__init__(**kwargs)


class SecretField(fields.AutoTypedField):
    """A text, as TextField, that must not get into logs."""

    def __init__(self, limit: int, pattern: str, **kwargs: Any) -> None:
        self.AUTO_TYPE = _Secret(limit, pattern)
        super().__init__(**kwargs)


class ChoiceField(TextField):
    """One of a few words."""

    def __init__(self, *choices: str, **kwargs: Any) -> None:
        super().__init__(32, '|'.join(map(re.escape, choices)), **kwargs)


class UUIDField(TextField):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(36, UUID, **kwargs)


class CountField(fields.AutoTypedField):
    """An integer of 0 to limit."""

    def __init__(self, limit: int = MAX_COUNT, **kwargs: Any) -> None:
        self.AUTO_TYPE = _Count(limit)
        super().__init__(**kwargs)


class NumberField(fields.AutoTypedField):
    """A finite float, not negative."""

    AUTO_TYPE = _Number()


class FlagField(fields.AutoTypedField):
    AUTO_TYPE = _Flag()


class TextsField(fields.AutoTypedField):
    """A list of texts."""

    def __init__(self, limit: int, text_limit: int, **kwargs: Any) -> None:
        self.AUTO_TYPE = _List(_Text(text_limit, None), limit)
        super().__init__(**kwargs)


class CountsField(fields.AutoTypedField):
    """A list of integers of 0 to count_limit."""

    def __init__(self, limit: int, count_limit: int, **kwargs: Any) -> None:
        self.AUTO_TYPE = _List(_Count(count_limit), limit)
        super().__init__(**kwargs)


class ObjectField(fields.AutoTypedField):
    """An object of one class."""

    def __init__(self, name: str, **kwargs: Any) -> None:
        self.AUTO_TYPE = fields.Object(name)
        self.objname = name
        super().__init__(**kwargs)


class ObjectsField(fields.AutoTypedField):
    """A list of objects of one class.

    :param limit: most of them
    """

    def __init__(self, name: str, limit: int, **kwargs: Any) -> None:
        self.AUTO_TYPE = _List(fields.Object(name), limit)
        # where oslo.versionedobjects looks for the tree of versions
        self.objname = name
        super().__init__(**kwargs)


def optional(field: Callable[..., fields.AutoTypedField], *args: Any
             ) -> fields.AutoTypedField:
    """Return a field that may be None, and is if it is not given."""
    return field(*args, nullable=True, default=None)
