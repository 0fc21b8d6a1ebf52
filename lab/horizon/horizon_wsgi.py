# SPDX-License-Identifier: Apache-2.0
"""Horizon with its static files, which a web server serves otherwise.

Each page has a Content-Security-Policy that forbids handlers in the
attributes of elements, and plugins.  Horizon's own scripts within its
pages keep it from being stricter.
"""

from django.contrib.staticfiles import handlers
from django.core import wsgi

_POLICY = "script-src-attr 'none'; object-src 'none'; base-uri 'self'"

_application = handlers.StaticFilesHandler(wsgi.get_wsgi_application())


def application(environ, start_response):
    def start(status, headers, *rest):
        return start_response(
            status, [*headers, ('Content-Security-Policy', _POLICY)], *rest)
    return _application(environ, start)
