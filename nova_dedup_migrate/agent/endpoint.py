# SPDX-License-Identifier: Apache-2.0
"""The methods of rpc.api.AgentAPI, at the other end."""

import dataclasses

import oslo_messaging as messaging

from nova_dedup_migrate.agent import link
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.rpc import objects

#: Seconds a caller may wait for an event; he occupies a thread.
MAX_WAIT = 60.0


class Endpoint:
    """What the server calls; the versions are told in rpc.api.

    :param facts: facts.Facts
    :param incoming: incoming.IncomingEvents
    :param receiver: link.Receiver
    :param guests: with guest_state and forget_guest of
        local.LocalLibvirt
    """

    target = messaging.Target(version='1.0')

    def __init__(self, facts, incoming, receiver, guests):
        self._facts = facts
        self._incoming = incoming
        self._receiver = receiver
        self._guests = guests

    @messaging.expose
    def hello(self, ctxt):
        """Say that somebody is here."""
        return True

    @messaging.expose
    def facts(self, ctxt, request):
        _check(request, objects.DedupFactsRequest)
        self._incoming.expect(request.instance_uuid, request.migration_uuid)
        return self._facts.reply(request)

    @messaging.expose
    @messaging.expected_exceptions(link.ProbeRefused)
    def link_probe(self, ctxt, request):
        _check(request, objects.DedupLinkRequest)
        return self._receiver.offer(request)

    @messaging.expose
    def incoming(self, ctxt, request):
        _check(request, objects.DedupIncomingRequest)
        figures, reason = self._incoming.wait(
            request.instance_uuid, request.migration_uuid,
            min(request.wait, MAX_WAIT))
        if figures is None:
            return objects.DedupIncomingReply(known=False, reason=reason)
        values = dataclasses.asdict(figures)
        del values['active']
        return objects.DedupIncomingReply(known=True, **values)

    @messaging.expose
    @messaging.expected_exceptions(errors.HypervisorError)
    def guest_state(self, ctxt, request):
        _check(request, objects.DedupGuestRequest)
        return objects.DedupGuestReply(
            uuid=request.instance_uuid,
            state=self._guests.guest_state(request.instance_uuid))

    @messaging.expose
    @messaging.expected_exceptions(errors.HypervisorError)
    def forget_guest(self, ctxt, request):
        _check(request, objects.DedupForgetRequest)
        return self._guests.forget_guest(request.instance_uuid)


def _check(request, expected):
    if not isinstance(request, expected):
        raise ValueError('the request is no %s' % expected.__name__)
