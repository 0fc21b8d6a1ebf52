# SPDX-License-Identifier: Apache-2.0
"""Reports as JSON and back.

The format is that of reports.report.  JSON has no infinity: in a band of
a prediction null stands for it, elsewhere a number that is not finite
becomes null.
"""

import json
import math

import cattrs
from cattrs.preconf import json as preconf

from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.reports import report

_BAND = ('low', 'likely', 'high')


def _finite(value):
    return value if math.isfinite(value) else None


def _band(value, _type):
    return plan.Band(*(math.inf if value[name] is None
                       else float(value[name]) for name in _BAND))


def _text(value, _type):
    # cattrs would make text of anything.
    if not isinstance(value, str):
        raise TypeError('expected text')
    return value


def _converter():
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


def plain(value):
    """Return a Report as what JSON knows: dicts, lists, numbers, text."""
    return _CONVERTER.unstructure(value)


def _no_constant(name):
    raise ValueError('%s is no JSON' % name)


def encode(value):
    """Return a Report as bytes of JSON."""
    return json.dumps(plain(value), indent=1, allow_nan=False).encode()


def decode(data):
    """Return the Report of bytes of JSON.

    :raises ValueError: with what is wrong
    """
    try:
        return structure(json.loads(data, parse_constant=_no_constant))
    except RecursionError as error:
        raise ValueError('it is nested too deeply') from error


def structure(value):
    """Return the Report of what JSON has.

    :raises ValueError: with what is wrong
    """
    if not isinstance(value, dict):
        raise ValueError('it is not a JSON object')
    version = value.get('version')
    if version != report.VERSION:
        raise ValueError('its version is %.40r, this release reads %d'
                         % (version, report.VERSION))
    return structure_as(value, report.Report, 'report')


def structure_as(value, kind, path):
    """Return an object of a dataclass of what JSON has.

    :param kind: the dataclass
    :param path: how the object is named in errors
    :raises ValueError: with what is wrong
    """
    try:
        return _CONVERTER.structure(value, kind)
    except cattrs.BaseValidationError as error:
        raise ValueError('; '.join(
            cattrs.transform_error(error, path=path))) from error
