# SPDX-License-Identifier: Apache-2.0
"""Building the disks of one block migration: what Nova and agents do.

Nova's pre_live_migration has made the file of each disk at the
destination by now, and libvirt is not called before they are built.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math
import os
import time
import typing

from nova import context as nova_context
from nova import objects
import nova.conf
from nova.virt.libvirt import utils as libvirt_utils
from oslo_log import log as logging
from oslo_serialization import jsonutils

from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import monitored_guest
from nova_dedup_migrate.compute import stored_images
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.identity import domain_disks
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import blocks

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)
_MIB = 1 << 20
#: Nova's name of the file of a root disk; only it was made of an image.
_ROOT = 'disk'
#: Seconds between two figures in the record of the migration.
_SHOW = 5.0


@dataclasses.dataclass(frozen=True)
class _File:
    """A disk's file at the destination.

    :ivar device: of the disk, as QEMU names it
    """

    device: str
    image: disk_objects.DedupImageFile
    backing: tuple[disk_objects.DedupImageFile, ...]


class DiskFiller:
    """tasks.disk_port.DiskPort of one migration.

    :param driver: the LibvirtDriver
    :param agents: of both hosts
    :param guest: at the source
    :param instance: nova.objects.Instance
    :param migrate_data: nova.objects.LibvirtLiveMigrateData
    :param operation: of the migration
    :param link_rate: callable(destination) -> bytes/s or None
    :param context: nova.context.RequestContext
    """

    def __init__(self, driver: typing.Any, agents: api.AgentAPI,
                 guest: guests.InstanceGuest, instance: objects.Instance,
                 migrate_data: objects.LibvirtLiveMigrateData,
                 operation: operations.Operation,
                 link_rate: Callable[[str], float | None],
                 context: nova_context.RequestContext) -> None:
        self._driver = driver
        self._agents = agents
        self._guest = guest
        self._instance = instance
        self._migrate_data = migrate_data
        self._operation = operation
        self._link_rate = link_rate
        self._context = context
        self._files: dict[str, _File] = {}
        self._shown = -math.inf
        #: target -> images of the image store that the destination reads
        self._stores: dict[str, image_objects.DedupImageStore] = {}

    def targets(self) -> Sequence[str]:
        """Return those whose format and place at the destination we know.

        :raises AgentUnavailable: an agent does not run
        """
        for host in self._operation.source, self._operation.destination:
            self._agents.hello(self._context, host)
        _, mirrored = self._driver._live_migration_copy_disk_paths(
            self._context, self._instance,
            self._driver._host.get_guest(self._instance))
        known = {disk['path']: disk for disk in jsonutils.loads(
            self._driver.get_instance_disk_info(self._instance))}
        directory = libvirt_utils.get_instance_path_at_destination(
            self._instance, self._migrate_data)
        for disk in domain_disks.parse(
                self._guest.domain().XMLDesc(0)).disks:
            path = disk.chain[0].path
            if disk.target in mirrored and path in known:
                found = _file(disk.device, directory, known[path])
                if found is not None:
                    self._files[disk.target] = found
        return tuple(self._files)

    def watch(self, target: str) -> watch_objects.DedupWatchReply:
        # The replica first: QEMU's record of writes goes on for one only.
        resume = self._agents.take_replica(
            self._context, self._operation.destination,
            replica_objects.DedupTakeRequest(
                instance_uuid=self._instance.uuid,
                migration_uuid=self._operation.migration_uuid,
                target=target))
        return self._agents.watch_disk(
            self._context, self._operation.source,
            watch_objects.DedupWatchRequest(
                instance_uuid=self._instance.uuid,
                migration_uuid=self._operation.migration_uuid,
                target=target, resume=resume or None,
                above_base=bool(self._files[target].backing)))

    def facts(self, target: str, watch: watch_objects.DedupWatchReply
              ) -> planner_disks.DiskFacts:
        """Return what decides whether a disk is built.

        Of the sample, the blocks of the host that has most count, and not
        what all hosts have together: a reply is a number, and two hosts may
        have the same blocks.  So less may be predicted than is found.
        """
        found = 0
        if watch.sample:
            request = watch_objects.DedupHaveRequest(
                project_id=self._instance.project_id, images=self._images,
                digests=list(watch.sample))
            found = max(
                self._agents.have_blocks(self._context, host, request)
                for host in (self._operation.destination,
                             *self._neighbours))
        sampled = len(watch.sample)
        tried, left_out = self._try_images(target, watch)
        rate = None
        # Of two sources one is counted: what they have may be the same.
        if tried is not None and (
                tried.found * sampled > found * tried.tried):
            sampled, found, rate = tried.tried, tried.found, tried.rate
        survey = self._survey
        configured = (CONF.dedup_migrate.link_bandwidth * 1e6
                      or CONF.libvirt.live_migration_bandwidth * _MIB)
        return planner_disks.DiskFacts(
            data=watch.data, sampled=sampled, found=found,
            link_rate=configured or survey.link_rate
            or self._link_rate(self._operation.destination),
            read_rate=CONF.dedup_migrate.disk_read_rate or None,
            write_rate=survey.disk_write_rate,
            current=1 - min(watch.dirty, watch.size) / max(1, watch.size),
            fetch_rate=rate, image_store=left_out)

    def _try_images(self, target: str, watch: watch_objects.DedupWatchReply
                    ) -> tuple[image_objects.DedupTryImagesReply | None, str]:
        """Find out which images of the image store the destination reads.

        :returns: what it has found in them, None if nothing was tried; why
            images are left out
        """
        self._stores.pop(target, None)
        if not CONF.dedup_migrate.disk_image_store or (
                os.path.basename(self._files[target].image.path) != _ROOT):
            return None, ''
        found = stored_images.find(self._context, self._instance, watch.size)
        store, reasons = found.store, [found.reason]
        if store is None or not watch.sample:
            return None, found.reason
        try:
            tried = self._agents.try_images(
                self._context, self._operation.destination,
                image_objects.DedupTryImagesRequest(
                    store=store, size=watch.size,
                    sample=self._agents.disk_sample(
                        self._context, self._operation.source,
                        self._operation.migration_uuid, target)))
        except rpc_errors.AgentUnavailable as error:
            return None, str(error)
        reasons.append(tried.reason)
        store.images = [image for image in store.images
                        if image.image in tried.images]
        if store.images:
            self._stores[target] = store
        return tried, '; '.join(filter(None, reasons))

    def build(self, target: str, watch: watch_objects.DedupWatchReply,
              seconds: float) -> None:
        file = self._files[target]
        self._agents.fill_disk(
            self._context, self._operation.destination,
            disk_objects.DedupFillRequest(
                instance_uuid=self._instance.uuid,
                migration_uuid=self._operation.migration_uuid,
                project_id=self._instance.project_id, images=self._images,
                target=target, image=file.image,
                backing=list(file.backing), size=watch.size,
                granularity=watch.granularity, watch=watch.watch,
                source=self._operation.source,
                neighbours=self._neighbours, seconds=seconds),
            self._stores.get(target))

    def state(self, target: str, wait: float
              ) -> disk_objects.DedupFillingReply:
        return self._agents.filling(
            self._context, self._operation.destination,
            self._operation.migration_uuid, target, wait)

    def show(self, total: int, left: int) -> None:
        """Put them in the migration's record, as Nova's monitor does later.

        Figures of memory are not there before that.
        """
        now = time.monotonic()
        if now - self._shown < _SHOW:
            return
        self._shown = now
        record = monitored_guest.MonitoredRecord(
            self._migrate_data.migration)
        record.disk_total = total
        record.disk_processed = total - left
        record.disk_remaining = left
        try:
            record.save()
        except Exception as error:
            LOG.warning('Figures of the disks of live migration %(migration)s '
                        'are not saved: %(error)s',
                        {'migration': self._operation.migration_uuid,
                         'error': error})

    def arm(self, target: str) -> watch_objects.DedupWatchReply:
        return self._agents.arm_disk(self._context, self._operation.source,
                                     self._operation.migration_uuid, target)

    def release(self, target: str) -> bool:
        return self._agents.release_disk(
            self._context, self._operation.source,
            self._operation.migration_uuid, target)

    def abort(self) -> None:
        self._agents.abort_filling(self._context,
                                   self._operation.destination,
                                   self._operation.migration_uuid)

    def used(self) -> dict[str, tuple[int | None, str]]:
        targets = {file.device: target
                   for target, file in self._files.items()}
        found: dict[str, tuple[int | None, str]] = {}
        for watch in self._guest.disk_watches():
            if watch.device not in targets or watch.recorder:
                continue
            if watch.state == watching.DROPPED:
                found[targets[watch.device]] = None, watch.reason or ''
            elif watch.state == watching.USED and not watch.reason:
                # With a reason its job has not begun to copy.
                found[targets[watch.device]] = watch.dirty, ''
        return found

    def forget(self) -> None:
        self._agents.forget_disks(self._context, self._operation.source,
                                  self._operation.migration_uuid)

    @functools.cached_property
    def _survey(self) -> survey_objects.DedupSurveyReply:
        """What the source's agent has measured, once for all disks."""
        return self._agents.survey(
            self._context, self._operation.source,
            survey_objects.DedupSurveyRequest(
                instance_uuid=self._instance.uuid,
                destination=self._operation.destination,
                max_age=CONF.dedup_migrate.survey_max_age))

    @property
    def _images(self) -> list[str]:
        image = self._instance.image_ref
        return [image] if image else []

    @property
    def _neighbours(self) -> list[str]:
        ends = self._operation.source, self._operation.destination
        return [host for host in CONF.dedup_migrate.disk_neighbours
                if host not in ends][:disk_objects.MAX_NEIGHBOURS]


def _file(device: str, directory: str, info: dict[str, typing.Any]
          ) -> _File | None:
    """Return where a disk is at the destination, None if it is not built.

    :param info: of get_instance_disk_info()
    """
    if info['type'] not in blocks.FORMATS:
        return None
    image = disk_objects.DedupImageFile(
        path=os.path.join(directory, os.path.basename(info['path'])),
        format=info['type'])
    backing = os.path.basename(info['backing_file'] or '')
    if not backing:
        return _File(device, image, ())
    if not CONF.force_raw_images:
        # The format of the base is the image's, whichever that is.
        return None
    return _File(device, image, (disk_objects.DedupImageFile(
        path=os.path.join(CONF.instances_path,
                          CONF.image_cache.subdirectory_name, backing),
        format='raw'),))
