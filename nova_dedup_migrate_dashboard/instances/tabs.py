# SPDX-License-Identifier: Apache-2.0
"""The tab of an instance's page: live migration, history."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from horizon import tabs

from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import views


class LiveMigrationTab(tabs.Tab):
    name = _('Live Migration')
    slug = 'dedup_live_migration'
    template_name = 'dedup_migrate/_instance.html'
    # Only those who open the tab wait for the controller.
    preload = False

    def allowed(self, request: Any) -> bool:
        return bool(request.user.has_perm('openstack.services.dedup-migrate'))

    def get_context_data(self, request: Any, **kwargs: Any
                         ) -> dict[str, Any]:
        instance = self.tab_group.kwargs['instance']
        context: dict[str, Any] = {'instance': instance, 'problem': '',
                                   'rows': []}
        try:
            context['rows'] = client.answers(lambda: client.first(
                views.proxy(request).migrations, number=10,
                server=instance.id)[0])()
        except (client.Unavailable, client.Refused) as error:
            context['problem'] = views.problem(error)
        return context
