# SPDX-License-Identifier: Apache-2.0
"""The tab of an instance's page: estimate, live migration, history."""

from __future__ import annotations

from typing import Any

from django.middleware import csrf
from django.utils.translation import gettext_lazy as _
from horizon import tabs

from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import views
from nova_dedup_migrate_dashboard.instances import views as parts


class LiveMigrationTab(tabs.Tab):
    name = _('Live Migration')
    slug = 'dedup_live_migration'
    template_name = 'dedup_migrate/_instance_tab.html'
    # Only those who open the tab wait for the controller.
    preload = False

    def allowed(self, request: Any) -> bool:
        return views.may_administer(request) and bool(
            request.user.has_perm('openstack.services.dedup-migrate'))

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        server = self.tab_group.kwargs['instance'].id
        context: dict[str, Any] = {
            'server_id': server, 'part': parts.PART,
            'seconds': parts.SECONDS, 'query': parts.query(request),
            # Horizon renders tabs without the request.
            'csrf_token': csrf.get_token(request)}
        try:
            context.update(client.answers(parts.load)(
                views.proxy(request), server,
                request.GET.get('estimate', '')))
        except (client.Unavailable, client.Refused) as error:
            context['problem'] = views.problem(error)
        return context
