# SPDX-License-Identifier: Apache-2.0
"""Errors of the reports."""

from nova_dedup_migrate import errors


class ReportError(errors.DedupMigrateError):
    """Base of the errors of the reports."""

    template = 'report error'


class InvalidName(ReportError):
    template = ('{name!r} is not the UUID of a migration; one looks like '
                '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11')


class ReportNotFound(ReportError):
    template = ('there is no report of migration {name} in {path}; run the '
                'command on the source host of the migration')


class ReportDamaged(ReportError):
    template = ('migration report {path} is damaged: {reason}; delete the '
                'file')


class StoreUnusable(ReportError):
    template = ('the reports in {path} cannot be used: {reason}; check '
                'reports_path and the permissions of that directory')
