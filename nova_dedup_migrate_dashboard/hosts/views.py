# SPDX-License-Identifier: Apache-2.0
"""Hosts as their agents report them, and the engines of the controller."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy
from django.utils.translation import ngettext

from nova_dedup_migrate.osc import sdk
from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import progress
from nova_dedup_migrate_dashboard import views


class IndexView(views.PartView):
    page_title = gettext_lazy('Migration Hosts')
    part = 'dedup_migrate/_hosts.html'
    seconds = 10

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        rows, more = client.first(api.hosts, number=client.ALL)
        drains, _more = client.first(api.drains, number=client.ALL)
        active = {one['host']: one for one in drains
                  if one['state'] not in progress.OVER}
        down = sum(row['agent'] != 'up' for row in rows)
        return {
            'hosts': [{**row, 'drain': active.get(row['name'])}
                      for row in rows],
            'more': more, 'down': down,
            'services': [client.plain(one) for one in api.services()],
            'status': ngettext('%d agent is down', '%d agents are down',
                               down) % down}
