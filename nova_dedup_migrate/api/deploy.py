# SPDX-License-Identifier: Apache-2.0
"""The application with its middleware, from the outside in.

::

    HTTPProxyToWSGI   addresses behind a proxy
    RequestId         an ID for the logs
    CatchErrors       what no one else has caught
    Public            what needs no token
    AuthProtocol      keystonemiddleware: who it is
    RateLimit
    Application
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keystonemiddleware import auth_token
from oslo_config import cfg
from oslo_middleware import catch_errors
from oslo_middleware import http_proxy_to_wsgi
from oslo_middleware import request_id

from nova_dedup_migrate.api import app
from nova_dedup_migrate.api import limits
from nova_dedup_migrate.api import public
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.policies import rules


class NoAuth:
    """Believes what the token says: user:project:role,role.

    For tests; see [api] auth_strategy.
    """

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any],
                 start_response: Callable[..., Any]) -> Any:
        parts = environ.get('HTTP_X_AUTH_TOKEN', '').split(':')
        if len(parts) != 3 or not all(parts):
            response = app.error_response(
                401, 'there is no token like user:project:role,role',
                str(environ.get('openstack.request_id') or ''))
            return response(environ, start_response)
        environ.update(HTTP_X_USER_ID=parts[0], HTTP_X_PROJECT_ID=parts[1],
                       HTTP_X_ROLES=parts[2],
                       HTTP_X_IDENTITY_STATUS='Confirmed')
        return self._application(environ, start_response)


def deploy(conf: cfg.ConfigOpts, database: facade.Database
           ) -> Callable[..., Any]:
    """Return the WSGI application.

    :param conf: read
    """
    made: Callable[..., Any] = app.Application(conf, database,
                                               rules.enforcer(conf))
    if conf.api.rate_limit:
        made = limits.RateLimit(made, conf.api.rate_limit)
    if conf.api.auth_strategy == 'noauth2':
        made = NoAuth(made)
    else:
        made = auth_token.AuthProtocol(
            made, {'oslo_config_config': conf})
    made = public.Public(made, database)
    made = catch_errors.CatchErrors(made)
    made = request_id.RequestId(made)
    return http_proxy_to_wsgi.HTTPProxyToWSGI(made)
