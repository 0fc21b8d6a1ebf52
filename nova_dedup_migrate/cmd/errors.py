# SPDX-License-Identifier: Apache-2.0
"""Errors of the commands."""


class CommandError(Exception):
    """Base; has one template, keeps its fields as attributes."""

    template = 'command failed'

    def __init__(self, **fields):
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(self.template.format(**fields))


class ConfigurationError(CommandError):
    template = ('the configuration cannot be used: {reason}; see '
                '--config-file')


class NoReports(CommandError):
    template = ('there are no reports in {path}; a report is written when a '
                'migration leaves this host')
