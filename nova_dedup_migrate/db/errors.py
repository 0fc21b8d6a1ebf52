# SPDX-License-Identifier: Apache-2.0
"""Errors of the controller's database."""

from __future__ import annotations

from nova_dedup_migrate import errors


class DatabaseError(errors.DedupMigrateError):
    """Base of the errors of the database."""

    template = 'the database of the controller failed'


class NotFound(DatabaseError):
    template = 'there is no {kind} {name}'


class InvalidMarker(DatabaseError):
    template = ('the marker {marker!r} is none of this list; use the link '
                'to the next page as it is')


class Conflict(DatabaseError):
    """The request contradicts what the database holds."""

    template = '{reason}'


class RevisionChanged(Conflict):
    """Somebody else has changed the row since it was read."""

    template = ('{kind} {name} has revision {now} and not {expected}; read '
                'it again and repeat the change')


class LeaseLost(DatabaseError):
    """Another engine owns the work now; nothing was written."""

    template = ('lease {name} of generation {generation} is not held by '
                '{owner} any more; another engine continues')


class SchemaOutdated(DatabaseError):
    template = ('the database has schema {found} and this release needs '
                '{needed}; run nova-dedup-migrate-manage db sync')
