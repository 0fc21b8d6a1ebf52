# SPDX-License-Identifier: Apache-2.0
"""The names that tasks and compute use for loader.PageCacheLoader."""

from nova_dedup_migrate.pagecache import loader


class Asker(loader.PageCacheLoader):

    def ask(self, usable=None):
        return self.load(usable)
