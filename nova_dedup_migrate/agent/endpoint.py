# SPDX-License-Identifier: Apache-2.0
"""The methods of rpc.api.AgentAPI, at the other end."""

from __future__ import annotations

import dataclasses
from typing import Any

from oslo_log import log as logging
import oslo_messaging as messaging

from nova_dedup_migrate.agent import disks as agent_disks
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import facts as agent_facts
from nova_dedup_migrate.agent import incoming as agent_incoming
from nova_dedup_migrate.agent import link
from nova_dedup_migrate.agent import local
from nova_dedup_migrate.agent import remains as agent_remains
from nova_dedup_migrate.agent import surveys as agent_surveys
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import watch_objects

LOG = logging.getLogger(__name__)

#: Seconds a caller may wait for an event; it occupies a thread.
MAX_WAIT = 60.0


class Endpoint:
    """What the server calls; the versions are listed in rpc.api.

    :param facts: facts.Facts
    :param migrations: incoming.IncomingMigrations
    :param receiver: link.Receiver
    :param guests: local.LocalLibvirt
    :param remains: remains.Remains
    :param surveys: surveys.Surveys
    :param disks: disks.Disks
    """

    target = messaging.Target(version='1.2')

    def __init__(self, facts: agent_facts.Facts,
                 migrations: agent_incoming.IncomingMigrations,
                 receiver: link.Receiver, guests: local.LocalLibvirt,
                 remains: agent_remains.Remains,
                 surveys: agent_surveys.Surveys,
                 disks: agent_disks.Disks) -> None:
        self._facts = facts
        self._migrations = migrations
        self._receiver = receiver
        self._guests = guests
        self._remains = remains
        self._surveys = surveys
        self._disks = disks

    @messaging.expose
    def hello(self, ctxt: Any) -> bool:
        """Answer that the agent works."""
        return True

    @messaging.expose
    def survey(self, ctxt: Any, request: survey_objects.DedupSurveyRequest
               ) -> survey_objects.DedupSurveyReply:
        _check(request, survey_objects.DedupSurveyRequest)
        return self._surveys.reply(ctxt, request)

    @messaging.expose
    def facts(self, ctxt: Any, request: objects.DedupFactsRequest
              ) -> objects.DedupFactsReply:
        _check(request, objects.DedupFactsRequest)
        self._migrations.announce(request.instance_uuid,
                                  request.migration_uuid)
        reply = self._facts.reply(request)
        reply.incoming_migrations = self._migrations.under_way(
            self._guests.guest_state_at_once, request.instance_uuid)
        return reply

    @messaging.expose
    @messaging.expected_exceptions(errors.ProbeRefused, errors.LinkInUse)
    def link_probe(self, ctxt: Any, request: objects.DedupLinkRequest
                   ) -> objects.DedupLinkOffer:
        _check(request, objects.DedupLinkRequest)
        return self._receiver.offer(request)

    @messaging.expose
    def incoming(self, ctxt: Any, request: objects.DedupIncomingRequest
                 ) -> objects.DedupIncomingReply:
        _check(request, objects.DedupIncomingRequest)
        figures, reason = self._migrations.wait(
            request.instance_uuid, request.migration_uuid,
            min(request.wait, MAX_WAIT))
        if figures is None:
            return objects.DedupIncomingReply(known=False, reason=reason)
        values = dataclasses.asdict(figures)
        del values['active']
        for refused in values.pop('refused'):
            LOG.warning('Instance %(instance)s: disk %(device)s cannot be '
                        'read here, so its pages came from the source: '
                        '%(reason)s',
                        {'instance': request.instance_uuid, **refused})
        return objects.DedupIncomingReply(known=True, **values)

    @messaging.expose
    @messaging.expected_exceptions(hypervisor_errors.HypervisorError)
    def guest_state(self, ctxt: Any, request: objects.DedupGuestRequest
                    ) -> objects.DedupGuestReply:
        _check(request, objects.DedupGuestRequest)
        presence = self._guests.guest(request.instance_uuid)
        return objects.DedupGuestReply(
            uuid=request.instance_uuid, state=presence.state,
            domain_id=presence.domain_id, reason=presence.reason)

    @messaging.expose
    @messaging.expected_exceptions(errors.ForgetRefused,
                                   hypervisor_errors.HypervisorError)
    def forget_guest(self, ctxt: Any, request: objects.DedupForgetRequest
                     ) -> bool:
        _check(request, objects.DedupForgetRequest)
        return self._remains.forget(request.instance_uuid,
                                    request.migration_uuid)

    @messaging.expose
    @messaging.expected_exceptions(errors.ChannelUnavailable)
    def channel_offer(self, ctxt: Any,
                      request: disk_objects.DedupChannelRequest
                      ) -> disk_objects.DedupChannelOffer:
        _check(request, disk_objects.DedupChannelRequest)
        return self._disks.channel.offer(request)

    @messaging.expose
    @messaging.expected_exceptions(errors.FillRefused)
    def fill_disk(self, ctxt: Any, request: disk_objects.DedupFillRequest,
                  store: image_objects.DedupImageStore | None = None
                  ) -> disk_objects.DedupFillingReply:
        _check(request, disk_objects.DedupFillRequest)
        if store is not None:
            _check(store, image_objects.DedupImageStore)
        return self._disks.fillings.fill(ctxt, request, store=store)

    @messaging.expose
    def filling(self, ctxt: Any, request: disk_objects.DedupFillingRequest
                ) -> disk_objects.DedupFillingReply:
        _check(request, disk_objects.DedupFillingRequest)
        request.wait = min(request.wait, MAX_WAIT)
        return self._disks.fillings.filling(request)

    @messaging.expose
    def abort_filling(self, ctxt: Any, migration_uuid: str) -> bool:
        self._disks.fillings.abort(str(migration_uuid))
        return True

    @messaging.expose
    @messaging.expected_exceptions(errors.WatchRefused)
    def watch_disk(self, ctxt: Any, request: watch_objects.DedupWatchRequest
                   ) -> watch_objects.DedupWatchReply:
        _check(request, watch_objects.DedupWatchRequest)
        return self._disks.watchings.watch(request)

    @messaging.expose
    @messaging.expected_exceptions(errors.WatchRefused)
    def arm_disk(self, ctxt: Any, request: disk_objects.DedupFillingRequest
                 ) -> watch_objects.DedupWatchReply:
        _check(request, disk_objects.DedupFillingRequest)
        return self._disks.watchings.arm(request.migration_uuid,
                                         request.target)

    @messaging.expose
    def release_disk(self, ctxt: Any,
                     request: disk_objects.DedupFillingRequest) -> bool:
        _check(request, disk_objects.DedupFillingRequest)
        return self._disks.watchings.release(request.migration_uuid,
                                             request.target)

    @messaging.expose
    def forget_disks(self, ctxt: Any, migration_uuid: str) -> bool:
        self._disks.watchings.forget(str(migration_uuid))
        return True

    @messaging.expose
    def have_blocks(self, ctxt: Any,
                    request: watch_objects.DedupHaveRequest) -> int:
        _check(request, watch_objects.DedupHaveRequest)
        return self._disks.have(request)

    @messaging.expose
    @messaging.expected_exceptions(errors.WatchRefused)
    def disk_sample(self, ctxt: Any,
                    request: disk_objects.DedupFillingRequest
                    ) -> image_objects.DedupDiskSample:
        _check(request, disk_objects.DedupFillingRequest)
        return self._disks.watchings.sample(request.migration_uuid,
                                            request.target)

    @messaging.expose
    def try_images(self, ctxt: Any,
                   request: image_objects.DedupTryImagesRequest
                   ) -> image_objects.DedupTryImagesReply:
        _check(request, image_objects.DedupTryImagesRequest)
        return self._disks.try_images(request)

    @messaging.expose
    @messaging.expected_exceptions(errors.FillRefused)
    def prepare_disk(self, ctxt: Any,
                     request: replica_objects.DedupPrepareRequest
                     ) -> disk_objects.DedupFillingReply:
        _check(request, replica_objects.DedupPrepareRequest)
        return self._disks.replicas.prepare(ctxt, request)

    @messaging.expose
    def take_replica(self, ctxt: Any,
                     request: replica_objects.DedupTakeRequest) -> str:
        _check(request, replica_objects.DedupTakeRequest)
        return self._disks.replicas.take(request)

    @messaging.expose
    def list_replicas(self, ctxt: Any) -> replica_objects.DedupReplicas:
        return self._disks.replicas.list()

    @messaging.expose
    def cancel_replicas(self, ctxt: Any, instance_uuid: str) -> int:
        return self._disks.replicas.cancel(str(instance_uuid))

    @messaging.expose
    def set_public_images(self, ctxt: Any,
                          request: disk_objects.DedupPublicImages) -> bool:
        _check(request, disk_objects.DedupPublicImages)
        self._disks.owners.set_public(request.images)
        return True


def _check(request: Any, expected: type) -> None:
    if not isinstance(request, expected):
        raise ValueError('the request is no %s' % expected.__name__)
