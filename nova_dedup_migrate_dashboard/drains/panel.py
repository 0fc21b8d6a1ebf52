# SPDX-License-Identifier: Apache-2.0
from django.utils.translation import gettext_lazy as _
import horizon


class DedupDrains(horizon.Panel):
    name = _('Host Drains')
    slug = 'dedup_drains'
    permissions = ('openstack.services.dedup-migrate',)
