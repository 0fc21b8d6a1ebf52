# SPDX-License-Identifier: Apache-2.0
"""Errors of the reports."""


class ReportError(Exception):
    """Base; has one template, keeps its fields as attributes."""

    template = 'report error'

    def __init__(self, **fields):
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(self.template.format(**fields))


class InvalidName(ReportError):
    template = ('{name!r} is not the UUID of a migration; one looks like '
                '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11')


class ReportNotFound(ReportError):
    template = ('there is no report of migration {name} in {path}; reports '
                'are kept on the host the instance left')


class ReportDamaged(ReportError):
    template = '{path} cannot be read: {reason}'


class StoreUnusable(ReportError):
    template = 'the reports in {path} cannot be used: {reason}'
