# SPDX-License-Identifier: Apache-2.0
"""What the tab of an instance shows and does: estimate, live migration.

The estimate that is shown is named in the query of the page, so it is
still there when the page is loaded again.
"""

from __future__ import annotations

from typing import Any
from urllib import parse
import uuid

from django import http
from django import urls
from django.utils.translation import gettext as _
from keystoneauth1 import exceptions as auth_exceptions
from novaclient import exceptions as nova_exceptions
from openstack_dashboard.api import nova

from nova_dedup_migrate.osc import sdk
from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import progress
from nova_dedup_migrate_dashboard import views

PART = 'dedup_migrate/_instance.html'
SECONDS = 3
#: Of the tab, in the query of the instance's page.
TAB = 'instance_details__dedup_live_migration'


def load(api: sdk.Proxy, server: str, estimate: str) -> dict[str, Any]:
    """Return the context of the part.

    :param server: UUID of the instance
    :param estimate: ID of the estimate that is shown; empty for none
    :raises Unavailable, Refused:
    """
    rows, _more = client.first(api.migrations, number=10, server=server)
    running = [row for row in rows if row['state'] == 'running']
    found = _estimate(api, server, estimate)
    state = found['state'] if found else ''
    waits = state in ('pending', 'running')
    row = (found['servers'] or [None])[0] if found and not waits else None
    if running:
        status = _('A live migration runs')
    elif waits:
        status = _('The check runs')
    else:
        status = _('The check has ended') if found else ''
    return {
        'estimate': found, 'waits': waits, 'row': row,
        'running': running, 'past': [one for one in rows
                                     if one['state'] != 'running'],
        'may_begin': not running and not waits and not (
            row and row['blockers']),
        'engine_away': waits and views.engine_away(api),
        'status': status}


def _estimate(api: sdk.Proxy, server: str, estimate: str
              ) -> dict[str, Any] | None:
    """Return an estimate of the instance; None if it is over or another's."""
    if not progress.is_uuid(estimate):
        return None
    try:
        found = client.plain(client.answers(api.get_estimate)(estimate))
    except client.Refused as error:
        if error.status != 404:
            raise
        return None
    return found if found['server_id'] == server else None


def query(request: http.HttpRequest) -> str:
    """Return the query that names the estimate of a request again."""
    estimate = request.GET.get('estimate', '')
    return parse.urlencode({'estimate': estimate} if estimate else {})


class InstanceView(views.PartView):
    """The part alone; the page around it is Horizon's."""

    part = PART

    def get(self, request: http.HttpRequest, *args: Any, **kwargs: Any
            ) -> http.HttpResponse:
        if 'part' not in request.GET:
            return http.HttpResponseRedirect(_page(self.kwargs['server']))
        return super().get(request, *args, **kwargs)

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        server = str(self.kwargs['server'])
        return {'server_id': server, **load(
            api, server, self.request.GET.get('estimate', ''))}


class EstimateView(views.ActionView):
    """Requests an estimate; the controller changes nothing for it."""

    made: str = ''

    def act(self, api: sdk.Proxy, data: Any) -> str:
        self.made = api.create_estimate(
            server_id=str(self.kwargs['server'])).id
        return _('The live migration is being estimated. Nothing moves.')

    def target(self) -> str:
        return _page(self.kwargs['server'], self.made)


class MigrateView(views.ActionView):
    """Requests a live migration; Nova chooses the host."""

    def act(self, api: sdk.Proxy, data: Any) -> str:
        try:
            nova.server_live_migrate(
                self.request, str(self.kwargs['server']), None,
                block_migration='auto')
        except nova_exceptions.ClientException as error:
            raise views.NovaRefused(error.code, error.message) from error
        except auth_exceptions.ClientException as error:
            raise views.NovaRefused(0, str(error)) from error
        return _('Nova was requested to migrate the instance live.')

    def target(self) -> str:
        return _page(self.kwargs['server'])


def _page(server: uuid.UUID, estimate: str = '') -> str:
    found = {'tab': TAB, **({'estimate': estimate} if estimate else {})}
    return '%s?%s' % (urls.reverse('horizon:admin:instances:detail',
                                   args=[str(server)]),
                      parse.urlencode(found))
