# SPDX-License-Identifier: Apache-2.0
PANEL = 'dedup_drains'
PANEL_DASHBOARD = 'admin'
PANEL_GROUP = 'compute'
ADD_PANEL = 'nova_dedup_migrate_dashboard.drains.panel.DedupDrains'
