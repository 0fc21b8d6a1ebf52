# SPDX-License-Identifier: Apache-2.0
"""Asking the agent of another host."""

import logging

import oslo_messaging as messaging

from nova_dedup_migrate import deadline
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import transport as rpc_transport

LOG = logging.getLogger(__name__)

_BUS = deadline.Runner('the message bus', 64)

#: Seconds that a call may take beyond its time-out: oslo.messaging's ends
#: the wait for an answer, and not that for a bus that is away.
MARGIN = 2.0
#: Of the caller's time, what the agent may use up; the rest is the bus's.
BUDGET = 0.8
#: Seconds for an answer there is nothing to do for.
PROMPT = 2.0
#: Seconds for the offer of a port: the agent waits up to link.PATIENCE for
#: another measurement to end.
OFFER = 5.0


class AgentAPI:
    """Client of nova-dedup-migrate-agent.

    Every method may raise errors.AgentUnavailable and nothing else on
    account of the agent or of the bus.  The agent that is asked is that
    of the host named, as Nova names it.

    How long an answer is waited for depends on what there is to do for
    it; a migration waits that long for an agent that hangs.

    ==========  =========================================================
    hello       PROMPT; whoever does not answer is asked nothing else
    facts       timeout: disks are looked at and read
    link_probe  OFFER, at most timeout
    incoming    the wait that is asked for, and PROMPT
    ==========  =========================================================

    Version history:

    * 1.0 - facts, link_probe, incoming.
    * 1.1 - hello.
    * 1.2 - guest_state.
    * 1.3 - forget_guest.

    A method that needs a later version asks can_send_version() and falls
    back on an earlier one, with its objects as that version had them.

    :param transport: of rpc.transport.get_transport, or Nova's own
    :param timeout: seconds to wait for facts
    :param version_cap: the latest version all agents understand, while
        the hosts of a cloud are upgraded one by one
    """

    def __init__(self, transport, timeout, version_cap=None):
        self._timeout = timeout
        self._client = rpc_transport.get_client(transport, timeout,
                                                version_cap)

    def hello(self, ctxt, host):
        """Return if the agent of a host answers at all.

        An agent of version 1.0 says that it does not know the question,
        which is an answer.
        """
        if not self._client.can_send_version('1.1'):
            return
        try:
            self._call(ctxt, host, 'hello', bool, PROMPT, '1.1')
        except errors.AgentVersion:
            LOG.debug('The dedup agent of %s does not know hello', host)

    def facts(self, ctxt, host, request):
        """Ask a destination what a migration to it can leave out.

        It also tells the agent that the migration is about to begin, see
        incoming().

        :param request: DedupFactsRequest, whose budget is set here;
            identity.challenge makes its disks
        :returns: DedupFactsReply with the disks of the request in order
        """
        request.budget = self._timeout * BUDGET
        reply = self._call(ctxt, host, 'facts', objects.DedupFactsReply,
                           self._timeout, request=request)
        if ([disk.target for disk in reply.disks]
                != [disk.target for disk in request.disks]):
            raise errors.AgentUnavailable(
                host, 'its answer is about other disks')
        return reply

    def link_probe(self, ctxt, host, request):
        """Ask a destination to take bytes, to measure the link to it.

        :param request: DedupLinkRequest
        :returns: DedupLinkOffer for agent.link.measure
        """
        return self._call(ctxt, host, 'link_probe', objects.DedupLinkOffer,
                          min(self._timeout, OFFER), request=request)

    def incoming(self, ctxt, host, instance_uuid, migration_uuid, wait=5.0):
        """Return what the destination's QEMU did in a migration.

        :param wait: seconds the agent waits for QEMU to be done
        :returns: DedupIncomingReply
        """
        request = objects.DedupIncomingRequest(
            instance_uuid=instance_uuid, migration_uuid=migration_uuid,
            wait=wait)
        return self._call(ctxt, host, 'incoming',
                          objects.DedupIncomingReply,
                          wait + PROMPT, request=request)

    def guest_state(self, ctxt, host, instance_uuid):
        """Return whether an instance is on a host.

        :returns: one of objects.GUEST_STATES
        """
        return self._call(ctxt, host, 'guest_state',
                          objects.DedupGuestReply, self._timeout, '1.2',
                          request=objects.DedupGuestRequest(
                              instance_uuid=instance_uuid)).state

    def forget_guest(self, ctxt, host, instance_uuid):
        """Have libvirt of a host forget a guest that does not run there.

        :returns: whether there was one
        """
        return self._call(ctxt, host, 'forget_guest', bool, PROMPT, '1.3',
                          request=objects.DedupGuestRequest(
                              instance_uuid=instance_uuid))

    def _call(self, ctxt, host, method, reply_class, timeout,
              version='1.0', **arguments):
        if not self._client.can_send_version(version):
            raise errors.AgentUnavailable(
                host, '%s needs version %s of the agent, and the version is '
                'capped' % (method, version))
        client = self._client.prepare(server=host, version=version,
                                      timeout=timeout)
        try:
            reply = _BUS.run(timeout + MARGIN, client.call, ctxt, method,
                             **arguments)
        except messaging.MessagingTimeout as error:
            raise errors.AgentUnavailable(
                host, 'no answer within %g s' % timeout) from error
        except deadline.Late as error:
            raise errors.AgentUnavailable(host, str(error)) from error
        except messaging.MessageUndeliverable as error:
            raise errors.AgentUnavailable(
                host, 'no agent has been started there') from error
        except Exception as error:
            # Drivers let their libraries' errors through, and whatever it
            # is, it must not fail the migration.
            raise _failure(host, error) from error
        if not isinstance(reply, reply_class):
            raise errors.AgentUnavailable(
                host, 'its answer is malformed: it is no %s'
                % reply_class.__name__)
        return reply


def _failure(host, error):
    """Return the AgentUnavailable that says what went wrong."""
    name, text = type(error).__name__, str(error)
    if isinstance(error, messaging.RemoteError):
        name, text = error.exc_type, error.value
    # of exceptions of Python in the agent, a traceback follows
    text = (str(text).splitlines() or [''])[0][:200]
    name = name.removesuffix('_Remote')
    if name in ('UnsupportedVersion', 'NoSuchMethod',
                'IncompatibleObjectVersion'):
        return errors.AgentVersion(host, 'it is of another version: ' + text)
    if isinstance(error, errors.MalformedMessage):
        return errors.AgentUnavailable(host,
                                       'its answer is malformed: ' + text)
    if (isinstance(error, messaging.MessagingException)
            and not isinstance(error, messaging.RemoteError)):
        return errors.AgentUnavailable(host,
                                       'the message bus failed: ' + text)
    LOG.warning('Asking the dedup agent of %s failed', host, exc_info=error)
    return errors.AgentUnavailable(host,
                                   'it failed with %s: %s' % (name, text))
