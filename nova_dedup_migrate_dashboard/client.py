# SPDX-License-Identifier: Apache-2.0
"""The controller's API with the token of the user who is logged in."""

from __future__ import annotations

from collections.abc import Callable
import functools
import logging
from typing import Any

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from openstack import connection
from openstack import exceptions

from nova_dedup_migrate.osc import sdk

LOG = logging.getLogger(__name__)

#: Seconds for one request; a page makes a few.
_TIMEOUT = 15
#: Rows of a table, so many that the API's first page tells of more; filters
#: and pages lead to the others.
ROWS = 99
#: Most rows of a list that is shown as a whole.
ALL = 1000
_VERSION = '/v1'


class Unavailable(Exception):
    """The controller does not answer, or fails."""


class Refused(Exception):
    """The controller refuses a request; str() is its sentence.

    :ivar status: of HTTP
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def proxy(url: str, token: str, verify: bool | str = True) -> sdk.Proxy:
    """Return the API.

    :param url: of the endpoint in the catalog, with the version or without
    :param token: of Keystone
    :param verify: whether certificates are checked, or the CA's file
    """
    url = url.rstrip('/')
    if not url.endswith(_VERSION):
        url += _VERSION
    made = session.Session(auth=token_endpoint.Token(url, token),
                           verify=verify, timeout=_TIMEOUT)
    found = sdk.Proxy(made, service_type=sdk.SERVICE_TYPE,
                      endpoint_override=url)
    # Resources need it, although none of its services is used.
    found._connection = connection.Connection(session=made)
    return found


def answers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function raise Unavailable or Refused for errors of the API."""
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except exceptions.HttpException as error:
            status = error.status_code or 0
            if 400 <= status < 500 and status != 429:
                raise Refused(status, _sentence(error)) from error
            LOG.warning('The controller fails: %s', error)
            raise Unavailable() from error
        except (exceptions.SDKException,
                auth_exceptions.ClientException) as error:
            LOG.warning('The controller cannot be reached: %s', error)
            raise Unavailable() from error
    return wrapper


def _sentence(error: exceptions.HttpException) -> str:
    """Return what the controller writes, without the request."""
    response: Any = error.response
    try:
        return str(response.json()['errors'][0]['detail'])
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return str(error.details or error.message)


def plain(found: Any) -> dict[str, Any]:
    """Return a resource as the API has it."""
    made: dict[str, Any] = found.to_dict(headers=False, computed=False,
                                         original_names=True)
    return made


def first(function: Callable[..., Any], *args: Any, number: int = ROWS,
          **query: Any) -> tuple[list[dict[str, Any]], bool]:
    """Return (the first rows of a list, whether there are more).

    :param function: of the proxy, as proxy.drains
    The limit is not sent: openstacksdk would not follow the links of the API
    then, but make markers of its own.
    """
    rows: list[dict[str, Any]] = []
    for row in function(*args, **query):
        if len(rows) == number:
            return rows, True
        rows.append(plain(row))
    return rows, False
