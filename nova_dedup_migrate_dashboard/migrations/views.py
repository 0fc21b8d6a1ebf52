# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any
from urllib import parse

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import views

#: Filters of the history, as the API has them.
_FILTERS = ('state', 'host', 'server', 'drain')
_RUNNING = ('preparing', 'running')


class IndexView(views.PartView):
    page_title = gettext_lazy('Live Migrations')
    template_name = 'dedup_migrate/migrations.html'
    part = 'dedup_migrate/_migrations.html'

    def load(self) -> dict[str, Any]:
        wanted = {name: self.request.GET[name].strip() for name in _FILTERS
                  if self.request.GET.get(name, '').strip()}
        rows, more = client.first(
            client.proxy(self.request).migrations(**wanted))
        running = [row for row in rows if row['finished_at'] is None]
        return {
            'running': running,
            'history': [row for row in rows if row['finished_at']],
            'more': more, 'filters': wanted,
            'query': parse.urlencode(wanted),
            'status': _('%d live migrations run') % len(running)}


class DetailView(views.PartView):
    page_title = gettext_lazy('Live Migration')
    part = 'dedup_migrate/_migration.html'
    seconds = 3

    def load(self) -> dict[str, Any]:
        proxy = client.proxy(self.request)
        uuid = str(self.kwargs['uuid'])
        one = proxy.get_migration(uuid).to_dict(computed=False)
        try:
            rounds, _more = client.first(proxy.rounds(uuid))
        except client.exceptions.NotFoundException:
            rounds = []
        explanation: list[str] = []
        warnings: list[str] = []
        if one['finished_at']:
            report = proxy.get_report(uuid).to_dict(computed=False)
            explanation = _sentences(report.get('explanation'))
            warnings = _sentences(report.get('warnings'))
        return {'one': one, 'rounds': rounds, 'explanation': explanation,
                'warnings': warnings, 'final': bool(one['finished_at']),
                'status': _('The live migration is %s') % one['state']}


def _sentences(value: Any) -> list[str]:
    """Return what a report has as text; reports of later versions differ."""
    if isinstance(value, str):
        return [value]
    return [str(one) for one in value] if isinstance(value, list) else []
