# SPDX-License-Identifier: Apache-2.0
"""How many requests a user may send: a bucket that fills again."""

from __future__ import annotations

import collections
from collections.abc import Callable
import math
import threading
import time
from typing import Any

from oslo_log import log as logging

from nova_dedup_migrate.api import app
from nova_dedup_migrate.api import errors

LOG = logging.getLogger(__name__)

#: Users that are remembered; the ones longest away are forgotten.
_USERS = 10000


class RateLimit:
    """WSGI middleware, behind the one that has found the user.

    :param limit: requests a minute
    """

    def __init__(self, application: Callable[..., Any], limit: int,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._application = application
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._left: collections.OrderedDict[str, tuple[float, float]] = (
            collections.OrderedDict())

    def __call__(self, environ: dict[str, Any],
                 start_response: Callable[..., Any]) -> Any:
        wait = self._wait(environ.get('HTTP_X_USER_ID') or '')
        if not wait:
            return self._application(environ, start_response)
        error = errors.TooMany(limit=self._limit, seconds=math.ceil(wait))
        response = app.error_response(
            error.status, str(error),
            str(environ.get('openstack.request_id') or ''))
        response.headers['Retry-After'] = str(error.seconds)
        return response(environ, start_response)

    def _wait(self, user: str) -> float:
        """Return the seconds until a user may send a request."""
        now = self._clock()
        rate = self._limit / 60.0
        with self._lock:
            left, at = self._left.get(user, (float(self._limit), now))
            left = min(float(self._limit), left + (now - at) * rate)
            wait = 0.0 if left >= 1 else (1 - left) / rate
            self._left[user] = (left if wait else left - 1), now
            self._left.move_to_end(user)
            while len(self._left) > _USERS:
                self._left.popitem(last=False)
        return wait
