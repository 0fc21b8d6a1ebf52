# SPDX-License-Identifier: Apache-2.0
"""The operations as a process does them that may read any image."""

from __future__ import annotations

from oslo_privsep import capabilities
from oslo_privsep import priv_context

from nova_dedup_migrate.images import operations

#: To open for reading what belongs to somebody else; nothing here opens
#: anything for writing.
CAPABILITIES = (capabilities.CAP_DAC_READ_SEARCH,)

context = priv_context.PrivContext(
    'nova_dedup_migrate.images',
    cfg_section='dedup_migrate_privileged',
    pypath=__name__ + '.context',
    capabilities=CAPABILITIES,
    timeout=60.0,
)


@context.entrypoint
def hold_lock(path: str, roots: operations.Roots, offset: int) -> int:
    return operations.hold_lock(path, roots, offset)


@context.entrypoint
def release_lock(number: int) -> None:
    operations.release_lock(number)


@context.entrypoint
def is_locked(path: str, roots: operations.Roots, offset: int) -> bool:
    return operations.is_locked(path, roots, offset)


@context.entrypoint
def sample(path: str, roots: operations.Roots, key: str, block: bool
           ) -> str | None:
    return operations.sample(path, roots, key, block)


@context.entrypoint
def read_rates(path: str, roots: operations.Roots, limit: int,
               seconds: float, block: bool
               ) -> tuple[float | None, float | None]:
    return operations.read_rates(path, roots, limit, seconds, block)
