# SPDX-License-Identifier: Apache-2.0
"""Live migrations: running and history, and one of them."""

from __future__ import annotations

from typing import Any
from urllib import parse

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.utils.translation import ngettext

from nova_dedup_migrate.osc import sdk
from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import views
from nova_dedup_migrate_dashboard import words

#: Filters of the history, as the API has them.
_FILTERS = ('state', 'host', 'server', 'project')


class IndexView(views.PartView):
    page_title = gettext_lazy('Live Migrations')
    template_name = 'dedup_migrate/migrations.html'
    part = 'dedup_migrate/_migrations.html'

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        wanted = self._wanted()
        marker = self.request.GET.get('marker')
        return super().get_context_data(
            filters=wanted, query=parse.urlencode(
                {**wanted, **({'marker': marker} if marker else {})}),
            filter_query=parse.urlencode(wanted), marker=marker,
            states=[(name, text) for name, (text, _colour)
                    in words.MIGRATION.items() if name != 'running'],
            **kwargs)

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        running, more_run = client.first(
            api.migrations, number=client.ALL, state='running')
        query: dict[str, Any] = dict(self._wanted())
        if self.request.GET.get('marker'):
            query['marker'] = self.request.GET['marker']
        rows, more = client.first(api.migrations, **query)
        return {
            'running': running, 'more_run': more_run,
            'history': [row for row in rows if row['state'] != 'running'],
            'older': rows[-1]['uuid'] if more else None,
            'status': ngettext('%d live migration runs',
                               '%d live migrations run',
                               len(running)) % len(running)}

    def _wanted(self) -> dict[str, str]:
        return {name: self.request.GET[name].strip() for name in _FILTERS
                if self.request.GET.get(name, '').strip()}


class DetailView(views.PartView):
    page_title = gettext_lazy('Live Migration')
    part = 'dedup_migrate/_migration.html'
    seconds = 3

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        uuid = str(self.kwargs['uuid'])
        one = client.plain(api.get_migration(uuid))
        report = self._report(api, uuid)
        plan = report.get('plan') or {}
        return {
            'one': one, 'rounds': report.get('rounds') or [],
            'disks': report.get('disks') or [],
            'explanation': _sentences(plan.get('explanation')),
            'reason': plan.get('reason') or '',
            'warnings': _sentences(report.get('warnings')),
            'final': one['state'] != 'running',
            'status': _('The live migration of %(name)s is %(state)s') % {
                'name': one['server_name'] or one['server_id'],
                'state': words.MIGRATION.get(
                    one['state'], (one['state'],))[0]}}

    @staticmethod
    def _report(api: sdk.Proxy, uuid: str) -> dict[str, Any]:
        """Return the report; empty if there is none, or none to be seen."""
        try:
            return client.plain(client.answers(api.get_report)(uuid))
        except client.Refused as error:
            if error.status not in (403, 404):
                raise
            return {}


def _sentences(value: Any) -> list[str]:
    """Return what a report has as text; reports of later versions differ."""
    if isinstance(value, str):
        return [value]
    return [str(one) for one in value] if isinstance(value, list) else []
