# SPDX-License-Identifier: Apache-2.0
ADD_INSTALLED_APPS = ['nova_dedup_migrate_dashboard']
PANEL = 'dedup_migrations'
PANEL_DASHBOARD = 'admin'
PANEL_GROUP = 'compute'
ADD_PANEL = ('nova_dedup_migrate_dashboard.migrations.panel'
             '.DedupMigrations')
EXTRA_TABS = {
    'openstack_dashboard.dashboards.admin.instances.tabs'
    '.AdminInstanceDetailTabs': (
        'nova_dedup_migrate_dashboard.instances.tabs.LiveMigrationTab',
    ),
}
