# SPDX-License-Identifier: Apache-2.0
"""Calls that reach storage, which may hang."""

from nova_dedup_migrate import deadline

#: Runs them; migrations queue for its threads.
STORAGE = deadline.Runner('storage', 16)
