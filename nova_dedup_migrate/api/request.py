# SPDX-License-Identifier: Apache-2.0
"""A request that was found valid, as handlers get it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import datetime
import re
from typing import Any
from urllib import parse

from oslo_config import cfg
from oslo_utils import timeutils

from nova_dedup_migrate.api import context as api_context
from nova_dedup_migrate.api import errors
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import pages


@dataclasses.dataclass(frozen=True)
class Request:
    """:ivar path: parameters in the path
    :ivar query: parameters of the query
    :ivar body: JSON, None if there was none
    :ivar if_match: revision that the caller expects, None for any
    :ivar url: without the query
    """

    context: api_context.RequestContext
    database: facade.Database
    conf: cfg.ConfigOpts
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any
    if_match: int | None
    url: str

    @property
    def limit(self) -> int:
        """Rows of a page."""
        given = int(self.query.get('limit', pages.DEFAULT))
        if not 1 <= given <= pages.MOST:
            raise errors.BadRequest(
                reason='limit is %d, expected 1 to %d' % (given,
                                                          pages.MOST))
        return given

    @property
    def marker(self) -> str | None:
        return self.query.get('marker')

    def page(self, name: str, page: pages.Page,
             represent: Callable[[Mapping[str, Any]], Any]
             ) -> dict[str, Any]:
        """Return a page of a list, with a link to the next one."""
        made: dict[str, Any] = {name: [represent(row)
                                       for row in page.rows]}
        if page.marker is not None:
            query = {**self.query, 'marker': page.marker}
            made[name + '_links'] = [{
                'rel': 'next',
                'href': '%s?%s' % (self.url, parse.urlencode(query))}]
        return made


@dataclasses.dataclass(frozen=True)
class Response:
    """What a handler returns.

    :ivar body: JSON, None for none
    :ivar status: None: that of the route
    :ivar revision: for the header ETag
    :ivar location: path of what was made
    """

    body: Any = None
    status: int | None = None
    revision: int | None = None
    location: str = ''


def time(seconds: float | None) -> str | None:
    """Return seconds since the epoch as ISO 8601."""
    if seconds is None:
        return None
    return datetime.datetime.fromtimestamp(
        seconds, datetime.timezone.utc).isoformat(timespec='milliseconds')


def seconds(text: str | None, name: str) -> float | None:
    """Return seconds since the epoch of ISO 8601.

    :param name: of the field, for the error
    :raises BadRequest: it is none
    """
    if text is None:
        return None
    try:
        # A + of a zone that was not escaped arrives as a space.
        return timeutils.normalize_time(timeutils.parse_isotime(
            text.replace(' ', '+'))).replace(
                tzinfo=datetime.timezone.utc).timestamp()
    except (ValueError, OverflowError) as error:
        raise errors.BadRequest(
            reason='%s is %.40r, expected a time like '
            '2026-01-31T12:00:00Z' % (name, text)) from error


def revision(header: str | None) -> int | None:
    """Return the revision in a header If-Match.

    :raises BadRequest: it is none of our ETags
    """
    if header is None or header.strip() == '*':
        return None
    found = re.fullmatch(r'"([0-9]{1,9})"', header.strip())
    if found is None:
        raise errors.BadRequest(
            reason='If-Match is %.40r, expected the ETag of a response'
            % header)
    return int(found.group(1))
