# SPDX-License-Identifier: Apache-2.0
"""The controller's API with the token of the user who is logged in."""

from __future__ import annotations

from collections.abc import Callable
import functools
import logging
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import session
from keystoneauth1 import token_endpoint
from openstack import exceptions
from openstack_dashboard.api import base

from nova_dedup_migrate.osc import sdk

LOG = logging.getLogger(__name__)

#: Seconds for one request; a page makes a few.
_TIMEOUT = 15
#: Most rows of a table; filters find the others.
ROWS = 100


class Unavailable(Exception):
    """The controller does not answer; str() is for the user."""


class Refused(Exception):
    """The controller refuses a request; str() is for the user.

    :ivar status: of HTTP
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def proxy(request: Any) -> sdk.Proxy:
    """Return the API for the user of a request."""
    url = base.url_for(request, sdk.SERVICE_TYPE)
    verify: Any = not getattr(settings, 'OPENSTACK_SSL_NO_VERIFY', False)
    cacert = getattr(settings, 'OPENSTACK_SSL_CACERT', None)
    return sdk.Proxy(
        session.Session(
            auth=token_endpoint.Token(url, request.user.token.id),
            verify=cacert if verify and cacert else verify,
            timeout=_TIMEOUT),
        service_type=sdk.SERVICE_TYPE, endpoint_override=url)


def answers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function raise Unavailable or Refused and nothing else.

    What the controller writes may name hosts and is for operators, so only
    its own sentence is shown, not the request.
    """
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except exceptions.HttpException as error:
            status = error.status_code or 0
            if status >= 500 or not status:
                LOG.warning('The controller fails: %s', error)
                raise Unavailable(_(
                    'The migration controller cannot answer now. Migrations '
                    'and drains go on without this page.')) from error
            raise Refused(status, error.details or str(error)) from error
        except (exceptions.SDKException, auth_exceptions.ClientException,
                ) as error:
            LOG.warning('The controller cannot be reached: %s', error)
            raise Unavailable(_(
                'The migration controller cannot be reached. Migrations '
                'and drains go on without this page.')) from error
    return wrapper


def first(rows: Any, number: int = ROWS) -> tuple[list[dict[str, Any]], bool]:
    """Return (the first rows as dicts, whether there are more)."""
    found = []
    for row in rows:
        if len(found) == number:
            return found, True
        found.append(row.to_dict(computed=False))
    return found, False
