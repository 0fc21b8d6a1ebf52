# SPDX-License-Identifier: Apache-2.0
"""Errors of the agent.

rpc.api knows the names of those that an agent raises to refuse a request.
"""

from nova_dedup_migrate import errors


class ProbeRefused(errors.DedupMigrateError):
    """Another measurement is under way, or this host cannot listen."""

    template = 'the link is not measured: {reason}'


class LinkInUse(errors.DedupMigrateError):
    """A migration of or to this host is under way."""

    template = ('the link is not measured while a migration of or to {host} '
                'is under way')


class ForgetRefused(errors.DedupMigrateError):
    """It is not certain that a domain is what a failed migration left."""

    template = ('instance {instance_uuid} stays defined in libvirt of this '
                'host: {reason}')


class OfferRefused(errors.DedupMigrateError):
    """A destination has offered what this host does not connect to."""

    template = ('the link to {host} is not measured, because its agent '
                'offers {address}, port {port}: {reason}')


class ChannelUnavailable(errors.DedupMigrateError):
    """A host cannot connect to the data channel of this one."""

    template = 'the data channel of {host} is not available: {reason}'


class WatchRefused(errors.DedupMigrateError):
    """A disk is not watched here."""

    template = 'disk {target} of instance {instance} is not watched: {reason}'


class FillRefused(errors.DedupMigrateError):
    """A disk is not built here."""

    template = 'disk {target} of instance {instance} is not built: {reason}'
