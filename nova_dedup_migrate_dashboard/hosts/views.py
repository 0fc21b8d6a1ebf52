# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import views


class IndexView(views.PartView):
    page_title = gettext_lazy('Migration Hosts')
    part = 'dedup_migrate/_hosts.html'
    seconds = 10

    def load(self) -> dict[str, Any]:
        proxy = client.proxy(self.request)
        rows, more = client.first(proxy.hosts(), 1000)
        services, _more = client.first(proxy.services(), 100)
        return {'hosts': rows, 'more': more, 'services': services,
                'status': _('%d agents are down') % sum(
                    row['agent'] != 'up' for row in rows)}
