# SPDX-License-Identifier: Apache-2.0
"""The module that Nova imports as nova.virt.dedup_migrate (see finder).

nova.conf: ``compute_driver = dedup_migrate.DedupMigrateLibvirtDriver``
"""

from nova_dedup_migrate.compute.driver import DedupMigrateLibvirtDriver

__all__ = ['DedupMigrateLibvirtDriver']
