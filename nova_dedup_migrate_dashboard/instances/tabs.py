# SPDX-License-Identifier: Apache-2.0
"""The tab of an instance's page: its estimate and its live migrations."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from horizon import tabs

from nova_dedup_migrate_dashboard import client


class LiveMigrationTab(tabs.Tab):
    name = _('Live Migration')
    slug = 'dedup_live_migration'
    template_name = 'dedup_migrate/_instance.html'
    # The estimate takes a moment: only those who open the tab wait.
    preload = False

    def allowed(self, request: Any) -> bool:
        return request.user.has_perm('openstack.services.dedup-migrate')

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        server = self.tab_group.kwargs['instance_id']
        context = {'server_id': server, 'problem': '', 'rows': []}
        try:
            context['rows'] = client.answers(self._rows)(request, server)
        except (client.Unavailable, client.Refused) as error:
            context['problem'] = str(error)
        return context

    @staticmethod
    def _rows(request: Any, server: str) -> list[dict[str, Any]]:
        return client.first(
            client.proxy(request).migrations(server=server), 10)[0]
