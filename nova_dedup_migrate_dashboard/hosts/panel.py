# SPDX-License-Identifier: Apache-2.0
from django.utils.translation import gettext_lazy as _
import horizon


class DedupHosts(horizon.Panel):
    name = _('Migration Hosts')
    slug = 'dedup_hosts'
    permissions = ('openstack.services.dedup-migrate',)
