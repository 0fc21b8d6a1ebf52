# SPDX-License-Identifier: Apache-2.0
"""Errors of the commands."""

from nova_dedup_migrate import errors


class CommandError(errors.DedupMigrateError):
    """Base of the errors of the commands."""

    template = 'command failed'


class ConfigurationError(CommandError):
    template = ('the configuration cannot be used: {reason}; see '
                '--config-file')


class CommandFailed(CommandError):
    template = '{reason}'


class NoReports(CommandError):
    template = ('there are no reports in {path}; the source host of a live '
                'migration writes its report')


class SimilarityFailed(CommandError):
    template = 'disk {disk} is not compared: {reason}'


class IndexFailed(CommandError):
    template = 'file {path} is not indexed: {reason}'


class EstimateFailed(CommandError):
    template = 'instance {server} is not measured: {reason}'


class PreparationFailed(CommandError):
    template = 'instance {server} is not prepared: {reason}'


class AbortFailed(CommandError):
    template = 'the move of volume {volume} is not aborted: {reason}'
