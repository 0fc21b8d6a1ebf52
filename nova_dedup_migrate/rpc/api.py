# SPDX-License-Identifier: Apache-2.0
"""The client of the agent of a host."""

from __future__ import annotations

from collections.abc import Sequence
import logging
from typing import Any
from typing import TypeVar

from oslo_config import cfg
import oslo_messaging as messaging

from nova_dedup_migrate import deadline
from nova_dedup_migrate.conf import upgrade_levels
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import transport as rpc_transport
from nova_dedup_migrate.rpc import watch_objects

LOG = logging.getLogger(__name__)

_BUS = deadline.Runner('the message bus', 64)

#: Seconds that a call may take beyond its time-out: that of
#: oslo.messaging covers the wait for an answer, and not that for a bus
#: that is away.
MARGIN = 2.0
#: Of the caller's time, the share for the agent; the rest is the bus's.
BUDGET = 0.8
#: Seconds for an answer that takes no work.
PROMPT = 2.0
#: Seconds for the offer of a port: the agent waits up to link.PATIENCE
#: until another measurement has ended.
OFFER = 5.0

_Reply = TypeVar('_Reply')


class AgentAPI:
    """Client of nova-dedup-migrate-agent.

    Each method calls the agent of the host named, as Nova names it.  If
    the agent or the bus fails, it raises errors.AgentUnavailable and
    nothing else; AgentRefused is a subclass for requests that an agent
    refuses for a reason.

    A migration waits for an agent that hangs as long as this:

    ============  =======================================================
    hello         PROMPT; an agent that does not answer it gets no other
                  request
    survey        timeout: the guest is sampled if no sample is recent
    facts         timeout: disks are opened and read
    link_probe    OFFER, at most timeout
    incoming      the wait in the request, and PROMPT
    guest_state   timeout
    forget_guest  PROMPT
    channel_offer PROMPT
    fill_disk     timeout; the disk is built afterwards
    filling       the wait in the request, and PROMPT
    abort_filling timeout
    watch_disk    timeout; a sample of the disk is read
    arm_disk      timeout
    release_disk  timeout
    forget_disks  timeout
    have_blocks   timeout
    disk_sample   PROMPT
    try_images    timeout; images of the image store are read
    set_public_images
                  timeout
    ============  =======================================================

    Version history:

    * 1.0 - hello, survey, facts, link_probe, incoming, guest_state,
      forget_guest.
    * 1.1 - channel_offer, fill_disk, filling, abort_filling,
      set_public_images, watch_disk, arm_disk, release_disk,
      forget_disks, have_blocks, prepare_disk, take_replica,
      list_replicas, cancel_replicas.
    * 1.2 - fill_disk has store; disk_sample, try_images.

    A method that needs a later version checks can_send_version() and
    falls back on an earlier one, with its objects as that version had
    them.

    :param transport: of rpc.transport.get_transport, or Nova's own
    :param timeout: seconds to wait for facts and surveys
    :param version_cap: the latest version all agents know, while the
        hosts of a cloud are upgraded one by one
    """

    def __init__(self, transport: messaging.RPCTransport, timeout: float,
                 version_cap: str | None = None) -> None:
        self._timeout = timeout
        self._client = rpc_transport.get_client(transport, timeout,
                                                version_cap)

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts,
                  transport: messaging.RPCTransport | None = None
                  ) -> AgentAPI:
        """Make a client as the configuration has it.

        :param conf: with conf.dedup_migrate registered
        :param transport: default a new one
        """
        upgrade_levels.register_opts(conf)
        return cls(transport or rpc_transport.get_transport(conf),
                   conf.dedup_migrate.rpc_timeout,
                   conf.upgrade_levels.dedup_migrate_agent)

    def hello(self, ctxt: Any, host: str) -> None:
        """Return if the agent of a host answers at all."""
        self._call(ctxt, host, 'hello', bool, PROMPT)

    def survey(self, ctxt: Any, host: str,
               request: survey_objects.DedupSurveyRequest
               ) -> survey_objects.DedupSurveyReply:
        """Return a sample of a guest and the rate of a link.

        :param host: the one that runs the guest
        :param request: DedupSurveyRequest, whose budget is set here
        """
        request.budget = self._timeout * BUDGET
        return self._call(ctxt, host, 'survey',
                          survey_objects.DedupSurveyReply, self._timeout,
                          request=request)

    def facts(self, ctxt: Any, host: str,
              request: objects.DedupFactsRequest
              ) -> objects.DedupFactsReply:
        """Return what a migration to a destination can leave out.

        It announces the migration to the agent, for incoming() and
        forget_guest().

        :param host: the destination
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

    def link_probe(self, ctxt: Any, host: str,
                   request: objects.DedupLinkRequest
                   ) -> objects.DedupLinkOffer:
        """Have a destination take bytes, to measure the link to it.

        :returns: DedupLinkOffer for agent.link.measure
        """
        return self._call(ctxt, host, 'link_probe', objects.DedupLinkOffer,
                          min(self._timeout, OFFER), request=request)

    def incoming(self, ctxt: Any, host: str, instance_uuid: str,
                 migration_uuid: str, wait: float = 5.0
                 ) -> objects.DedupIncomingReply:
        """Return what the destination's QEMU did in a migration.

        :param wait: seconds the agent waits for QEMU to be done
        """
        request = objects.DedupIncomingRequest(
            instance_uuid=instance_uuid, migration_uuid=migration_uuid,
            wait=wait)
        return self._call(ctxt, host, 'incoming',
                          objects.DedupIncomingReply,
                          wait + PROMPT, request=request)

    def guest(self, ctxt: Any, host: str, instance_uuid: str
              ) -> objects.DedupGuestReply:
        """Return what libvirt of a host has of an instance."""
        reply = self._call(ctxt, host, 'guest_state',
                           objects.DedupGuestReply, self._timeout,
                           request=objects.DedupGuestRequest(
                               instance_uuid=instance_uuid))
        if reply.uuid != instance_uuid:
            raise errors.AgentUnavailable(
                host, 'its answer is about instance %s' % reply.uuid)
        return reply

    def guest_state(self, ctxt: Any, host: str, instance_uuid: str) -> str:
        """Return where an instance is, one of objects.GUEST_STATES."""
        return self.guest(ctxt, host, instance_uuid).state

    def forget_guest(self, ctxt: Any, host: str, instance_uuid: str,
                     migration_uuid: str) -> bool:
        """Have libvirt undefine the shut-off guest of a failed migration.

        :param host: its destination
        :param migration_uuid: of that migration, as in facts()
        :returns: whether there was one
        :raises AgentRefused: it is not certain that it is one
        """
        return self._call(ctxt, host, 'forget_guest', bool, PROMPT,
                          request=objects.DedupForgetRequest(
                              instance_uuid=instance_uuid,
                              migration_uuid=migration_uuid))

    def channel_offer(self, ctxt: Any, host: str,
                      request: disk_objects.DedupChannelRequest
                      ) -> disk_objects.DedupChannelOffer:
        """Return a ticket for the data channel of a host.

        :raises AgentRefused: it has no channel, or not that disk
        """
        return self._call(ctxt, host, 'channel_offer',
                          disk_objects.DedupChannelOffer, PROMPT, '1.1',
                          request=request)

    def fill_disk(self, ctxt: Any, host: str,
                  request: disk_objects.DedupFillRequest,
                  store: image_objects.DedupImageStore | None = None
                  ) -> disk_objects.DedupFillingReply:
        """Have a destination begin to build a disk.

        A disk that it builds already is not begun again.

        :param store: images that it may read; an agent that is older does
            not get it
        :raises AgentRefused:
        """
        if store is not None and self._client.can_send_version('1.2'):
            try:
                return self._call(ctxt, host, 'fill_disk',
                                  disk_objects.DedupFillingReply,
                                  self._timeout, '1.2', request=request,
                                  store=store)
            except errors.AgentVersion as error:
                LOG.info('Disk %s of instance %s is built without the image '
                         'store: %s', request.target, request.instance_uuid,
                         error)
        return self._call(ctxt, host, 'fill_disk',
                          disk_objects.DedupFillingReply, self._timeout,
                          '1.1', request=request)

    def filling(self, ctxt: Any, host: str, migration_uuid: str,
                target: str, wait: float = 0.0
                ) -> disk_objects.DedupFillingReply:
        """Return how far a disk is.

        :param wait: seconds the agent waits for the end
        """
        return self._call(ctxt, host, 'filling',
                          disk_objects.DedupFillingReply, wait + PROMPT,
                          '1.1', request=disk_objects.DedupFillingRequest(
                              migration_uuid=migration_uuid, target=target,
                              wait=wait))

    def abort_filling(self, ctxt: Any, host: str, migration_uuid: str
                      ) -> bool:
        """Have a destination stop to build the disks of a migration."""
        return self._call(ctxt, host, 'abort_filling', bool, self._timeout,
                          '1.1', migration_uuid=migration_uuid)

    def watch_disk(self, ctxt: Any, host: str,
                   request: watch_objects.DedupWatchRequest
                   ) -> watch_objects.DedupWatchReply:
        """Have the source record writes to a disk; see agent.watchings.

        :raises AgentRefused:
        """
        return self._call(ctxt, host, 'watch_disk',
                          watch_objects.DedupWatchReply, self._timeout,
                          '1.1', request=request)

    def arm_disk(self, ctxt: Any, host: str, migration_uuid: str,
                 target: str) -> watch_objects.DedupWatchReply:
        """Have the next mirror leave out what the destination has proven.

        :param host: the source
        :raises AgentRefused:
        """
        return self._call(ctxt, host, 'arm_disk',
                          watch_objects.DedupWatchReply, self._timeout,
                          '1.1', request=disk_objects.DedupFillingRequest(
                              migration_uuid=migration_uuid, target=target))

    def release_disk(self, ctxt: Any, host: str, migration_uuid: str,
                     target: str) -> bool:
        """Have the source forget a disk that is not built.

        :returns: False if the destination may have written to it: then the
            mirror copies everything
        """
        return self._call(ctxt, host, 'release_disk', bool, self._timeout,
                          '1.1', request=disk_objects.DedupFillingRequest(
                              migration_uuid=migration_uuid, target=target))

    def forget_disks(self, ctxt: Any, host: str, migration_uuid: str
                     ) -> bool:
        """Have the source forget the disks of a migration.

        Not before their mirrors have begun, or their targets were removed.
        """
        return self._call(ctxt, host, 'forget_disks', bool, self._timeout,
                          '1.1', migration_uuid=migration_uuid)

    def have_blocks(self, ctxt: Any, host: str,
                    request: watch_objects.DedupHaveRequest) -> int:
        """Return how many of some blocks the index of a host has."""
        return self._call(ctxt, host, 'have_blocks', int, self._timeout,
                          '1.1', request=request)

    def disk_sample(self, ctxt: Any, host: str, migration_uuid: str,
                    target: str) -> image_objects.DedupDiskSample:
        """Return the sample of a disk that a source watches.

        :raises AgentRefused: it does not watch it
        """
        return self._call(ctxt, host, 'disk_sample',
                          image_objects.DedupDiskSample, PROMPT, '1.2',
                          request=disk_objects.DedupFillingRequest(
                              migration_uuid=migration_uuid, target=target))

    def try_images(self, ctxt: Any, host: str,
                   request: image_objects.DedupTryImagesRequest
                   ) -> image_objects.DedupTryImagesReply:
        """Have a destination read some of a sample from the image store."""
        return self._call(ctxt, host, 'try_images',
                          image_objects.DedupTryImagesReply, self._timeout,
                          '1.2', request=request)

    def prepare_disk(self, ctxt: Any, host: str,
                     request: replica_objects.DedupPrepareRequest
                     ) -> disk_objects.DedupFillingReply:
        """Have a host build a replica of a disk; filling() follows it.

        :raises AgentRefused:
        """
        return self._call(ctxt, host, 'prepare_disk',
                          disk_objects.DedupFillingReply, self._timeout,
                          '1.1', request=request)

    def take_replica(self, ctxt: Any, host: str,
                     request: replica_objects.DedupTakeRequest) -> str:
        """Have a migration's disk begin with what the replica has proven.

        The replica is not kept current any more until it was read anew.

        :returns: the watch that is to go on; '' if there is none
        """
        return self._call(ctxt, host, 'take_replica', str, self._timeout,
                          '1.1', request=request)

    def list_replicas(self, ctxt: Any, host: str
                      ) -> replica_objects.DedupReplicas:
        """Return the replicas of a host."""
        return self._call(ctxt, host, 'list_replicas',
                          replica_objects.DedupReplicas, self._timeout,
                          '1.1')

    def cancel_replicas(self, ctxt: Any, host: str, instance_uuid: str
                        ) -> int:
        """Have a host remove the replicas of an instance.

        :returns: how many there were
        """
        return self._call(ctxt, host, 'cancel_replicas', int,
                          self._timeout, '1.1',
                          instance_uuid=instance_uuid)

    def set_public_images(self, ctxt: Any, host: str,
                          images: Sequence[str]) -> bool:
        """Tell an agent which images are public: all of them.

        :param images: their IDs
        """
        return self._call(ctxt, host, 'set_public_images', bool,
                          self._timeout, '1.1',
                          request=disk_objects.DedupPublicImages(
                              images=list(images)))

    def _call(self, ctxt: Any, host: str, method: str,
              reply_class: type[_Reply], timeout: float,
              version: str = '1.0', **arguments: Any) -> _Reply:
        if not self._client.can_send_version(version):
            raise errors.AgentUnavailable(
                host, '%s needs version %s of the agent, and [upgrade_'
                'levels] dedup_migrate_agent allows none that has it'
                % (method, version))
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


#: What an agent raises, by name, to refuse a request.
_REFUSALS = ('ProbeRefused', 'LinkInUse', 'ForgetRefused',
             'ChannelUnavailable', 'FillRefused', 'WatchRefused')


def _failure(host: str, error: Exception) -> errors.AgentUnavailable:
    """Return the AgentUnavailable that has the cause in words."""
    name, text = type(error).__name__, str(error)
    if isinstance(error, messaging.RemoteError):
        name, text = error.exc_type, error.value
    # of exceptions of Python in the agent, a traceback follows
    text = (str(text).splitlines() or [''])[0][:objects.MAX_REASON]
    name = str(name).removesuffix('_Remote')
    if name in _REFUSALS:
        return errors.AgentRefused(host, text, name)
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
    LOG.warning('The request to the dedup agent of %s failed', host,
                exc_info=error)
    return errors.AgentUnavailable(host,
                                   'it failed with %s: %s' % (name, text))
