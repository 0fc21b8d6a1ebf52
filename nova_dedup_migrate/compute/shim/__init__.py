# SPDX-License-Identifier: Apache-2.0
"""Installed as nova.virt.dedup_migrate, where Nova looks for drivers.

nova.conf: ``compute_driver = dedup_migrate.DedupMigrateLibvirtDriver``
"""

from nova_dedup_migrate.compute.driver import DedupMigrateLibvirtDriver

__all__ = ['DedupMigrateLibvirtDriver']
