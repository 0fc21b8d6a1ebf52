# SPDX-License-Identifier: Apache-2.0
from django.utils.translation import gettext_lazy as _
import horizon


class DedupMigrations(horizon.Panel):
    name = _('Live Migrations')
    slug = 'dedup_migrations'
    permissions = ('openstack.services.dedup-migrate',)
