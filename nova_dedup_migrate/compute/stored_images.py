# SPDX-License-Identifier: Apache-2.0
"""Which images of the image store may serve to build an instance's disk.

The image of the instance, and its snapshots and backups, if they are

* public, or of the instance's project: content crosses projects only
  through public images.  The user who migrates is an administrator as a
  rule and sees more than that, so Glance's answers are looked at here;
* active, raw and bare: then a block is where it is in the disk.  Images of
  other formats are left out; a qcow2 snapshot has its blocks elsewhere.

They are read with the token of the request: what its user may not download
is not read.  Nova sends this token to the destination anyway, in the
context of pre_live_migration.  A token of Nova's own would do more, and
what it may not do would have to be decided here.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
from typing import Any

from nova import context as nova_context
from nova import objects
from nova.image import glance
from oslo_log import log as logging

from nova_dedup_migrate import deadline
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects as rpc_objects

LOG = logging.getLogger(__name__)

#: Images that are listed.
_LISTED = 64
#: Seconds that Nova's client of Glance may take: it has no time-out unless
#: [glance] timeout is set, and the migration waits.
PATIENCE = 10.0
_GLANCE = deadline.Runner('Glance', 8)


@dataclasses.dataclass(frozen=True)
class Found:
    """:ivar store: what the destination may read; None: nothing

    :ivar reason: why images are left out; '' if none is
    """

    store: image_objects.DedupImageStore | None = None
    reason: str = ''


def find(context: nova_context.RequestContext, instance: objects.Instance,
         size: int) -> Found:
    """Return the images that may serve for the root disk of an instance.

    Whatever fails is a reason: without images the disk is built from other
    sources.

    :param context: of the migration
    :param size: bytes of the disk; no larger image is used
    """
    if not context.auth_token:
        return Found(reason='the request of the migration has no token')
    try:
        return _GLANCE.run(PATIENCE, _find, context, instance, size)
    except Exception as error:
        # of Glance, its client or Keystone; none may end the migration
        LOG.warning('Images of instance %s are not read from the image '
                    'store: %s', instance.uuid, error)
        return Found(reason=_short('Glance cannot be used: %s' % (
            str(error) or type(error).__name__)))


def _find(context: nova_context.RequestContext, instance: objects.Instance,
          size: int) -> Found:
    chosen: list[dict[str, Any]] = []
    reasons = []
    for image in _candidates(context, instance):
        problem = _problem(image, instance, size)
        if problem:
            reasons.append('image %s %s' % (image.get('id'), problem))
        else:
            chosen.append(image)
    reason = _short('; '.join(reasons))
    if not chosen:
        return Found(reason=reason)
    del chosen[image_objects.MAX_STORED:]
    # A snapshot has more of the disk than the image it began with.
    chosen.sort(key=lambda image: image['id'] == instance.image_ref)
    return Found(image_objects.DedupImageStore(
        endpoint=glance.generate_glance_url(context).rstrip('/'),
        token=context.auth_token, images=[
            image_objects.DedupStoredImage(image=image['id'],
                                           size=image['size'])
            for image in chosen]), reason)


def _candidates(context: nova_context.RequestContext,
                instance: objects.Instance) -> Iterator[dict[str, Any]]:
    """Yield the image of an instance, then the newest of its own."""
    api = glance.API()
    if instance.image_ref:
        try:
            yield api.get(context, instance.image_ref)
        except Exception as error:
            # It may have been deleted long ago.
            LOG.debug('Image %s of instance %s is not there: %s',
                      instance.image_ref, instance.uuid, error)
    for image in api.get_all(
            context, filters={'instance_uuid': instance.uuid,
                              'owner': instance.project_id},
            sort_key='created_at', sort_dir='desc', limit=_LISTED):
        if image.get('id') != instance.image_ref:
            yield image


def _problem(image: dict[str, Any], instance: objects.Instance, size: int
             ) -> str:
    """Return why an image may not serve, '' if it may."""
    if not image.get('is_public') and (
            image.get('owner') != instance.project_id):
        return "is neither public nor of the instance's project"
    if image.get('status') != 'active':
        return 'is %s' % image.get('status')
    if image.get('disk_format') != 'raw':
        return ('is %s and not raw ([libvirt] snapshot_image_format)'
                % image.get('disk_format'))
    if image.get('container_format') != 'bare':
        return 'is in a container, %s' % image.get('container_format')
    if not 0 < (image.get('size') or 0) <= size:
        return 'has %s bytes, the disk %d' % (image.get('size'), size)
    return ''


def _short(reason: str) -> str:
    return reason[:rpc_objects.MAX_REASON]
