# SPDX-License-Identifier: Apache-2.0
"""Validators for ``dedup_migrate`` namespaced extra specs.

nova-api loads this module through its entry points and refuses a flavor
whose extra spec has another value or a name that is not known.
"""

from nova.api.validation.extra_specs import base

from nova_dedup_migrate.compute import strategy
from nova_dedup_migrate.planner import facts

EXTRA_SPEC_VALIDATORS = [
    base.ExtraSpecValidator(
        name=strategy.PROPERTY,
        description=(
            'What live migration of an instance may leave out because the '
            'destination can read it from storage. Takes precedence over '
            'the image property of the same name and over nova.conf. Only '
            'supported by the driver of nova-dedup-migrate.'
        ),
        value={
            'type': str,
            'description': (
                'auto: whatever is predicted to pay; shared_nas: pages of '
                'disks that both hosts open; page_cache: pages that the '
                'guest says it caches; snapshot: disks rebuilt from '
                'backups; compress: nothing is left out, but compressed; '
                'off: migrate as stock Nova does and do not track '
                'guest I/O'
            ),
            'enum': list(facts.STRATEGIES),
        },
    ),
    base.ExtraSpecValidator(
        name=strategy.COMPRESSION,
        description=(
            'Whether live migration of an instance compresses the pages '
            'that it sends. Takes precedence over the image property of '
            'the same name and over nova.conf. Only supported by the '
            'driver of nova-dedup-migrate.'
        ),
        value={
            'type': str,
            'description': (
                'auto: if that is predicted to save time; zstd: unless it '
                'is predicted to be slower; off: not at all'
            ),
            'enum': list(facts.COMPRESSIONS),
        },
    ),
    base.ExtraSpecValidator(
        name=strategy.CONTENT_INDEX,
        description=(
            'Whether the disks of an instance are read before its live '
            'migration, to find what its memory holds of them. Takes '
            'precedence over the image property of the same name and over '
            'nova.conf. Only supported by the driver of nova-dedup-migrate.'
        ),
        value={
            'type': str,
            'description': (
                'auto: if little is known otherwise and it may save time; '
                'on: always; off: never'
            ),
            'enum': list(facts.CONTENT_INDEXES),
        },
    ),
]


def register():
    """Return what Nova is to know."""
    return EXTRA_SPEC_VALIDATORS
