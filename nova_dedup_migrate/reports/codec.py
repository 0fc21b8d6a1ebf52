# SPDX-License-Identifier: Apache-2.0
"""Encoding of reports as JSON.

reports.report has the format.  JSON has no infinity: null replaces it in
the bands of a prediction, and any other number that is not finite.
"""

import json
import math
import typing

import cattrs
from cattrs.preconf import json as preconf

from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.reports import report

_Kind = typing.TypeVar('_Kind')
_BAND = ('low', 'likely', 'high')


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _band(value: dict[str, float | None], _type: type) -> plan.Band:
    return plan.Band(*(math.inf if limit is None else float(limit)
                       for limit in (value[name] for name in _BAND)))


def _text(value: typing.Any, _type: type) -> str:
    # cattrs would convert any value to text.
    if not isinstance(value, str):
        raise TypeError('expected text')
    return value


def _converter() -> preconf.JsonConverter:
    converter = preconf.make_converter()
    converter.register_structure_hook(str, _text)
    converter.register_unstructure_hook(float, _finite)
    converter.register_unstructure_hook(
        plan.Band,
        lambda band: {name: _finite(getattr(band, name))
                      for name in _BAND})
    converter.register_structure_hook(plan.Band, _band)
    return converter


_CONVERTER = _converter()


def plain(value: typing.Any) -> dict[str, typing.Any]:
    """Return a dataclass as dicts, lists, numbers and text."""
    return typing.cast(dict[str, typing.Any], _CONVERTER.unstructure(value))


def _no_constant(name: str) -> typing.NoReturn:
    raise ValueError('%s is not valid JSON' % name)


def encode(value: report.Report) -> bytes:
    """Return a Report as bytes of JSON."""
    return json.dumps(plain(value), indent=1, allow_nan=False).encode()


def decode(data: bytes) -> report.Report:
    """Return the Report of bytes of JSON.

    :raises ValueError: they are not a report; the message has the reason
    """
    try:
        return structure(json.loads(data, parse_constant=_no_constant))
    except RecursionError as error:
        raise ValueError('the JSON is nested too deeply') from error


def structure(value: typing.Any) -> report.Report:
    """Return the Report of dicts, lists, numbers and text.

    :raises ValueError: they are not a report; the message has the reason
    """
    if not isinstance(value, dict):
        raise ValueError('the report is not a JSON object')
    version = value.get('version')
    if version != report.VERSION:
        raise ValueError('report version %.40r; this release reads %d'
                         % (version, report.VERSION))
    return structure_as(value, report.Report, 'report')


def structure_as(value: typing.Any, kind: type[_Kind], path: str) -> _Kind:
    """Return an object of a dataclass, of dicts, lists and values.

    :param kind: the dataclass
    :param path: name of the object in errors
    :raises ValueError: it is not one; the message has the reason
    """
    try:
        return _CONVERTER.structure(value, kind)
    except cattrs.BaseValidationError as error:
        raise ValueError('; '.join(
            cattrs.transform_error(error, path=path))) from error
