# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with the lab, for the person who wants to use it."""

import pathlib

from nova_dedup_migrate.errors import DedupMigrateError


class LabError(DedupMigrateError):
    """One sentence that says what is wrong and, if it can, what to do.

    :param log: Path of a file whose last lines tell more, or None
    """

    template = '{reason}'

    def __init__(self, reason, log=None):
        super().__init__(reason=reason)
        self.log = log

    def last_lines(self, lines=12, limit=8192):
        """Return the end of the log as a list of lines."""
        if self.log is None:
            return []
        try:
            with pathlib.Path(self.log).open('rb') as log:
                size = log.seek(0, 2)
                log.seek(max(0, size - limit))
                text = log.read(limit).decode(errors='replace')
        except OSError:
            return []
        return [line[:300] for line in text.splitlines()[-lines:]]
