# SPDX-License-Identifier: Apache-2.0
"""The names that tasks and compute use for loader.PageCacheLoader."""

from collections.abc import Container

from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import loader


class Asker(loader.PageCacheLoader):

    def ask(self, usable: Container[str] | None = None) -> answer.Answer:
        return self.load(usable)
