# SPDX-License-Identifier: Apache-2.0
"""Looking at storage, which may hang."""

from nova_dedup_migrate import deadline

#: Runs what looks at storage.
STORAGE = deadline.Runner('storage', 16)
