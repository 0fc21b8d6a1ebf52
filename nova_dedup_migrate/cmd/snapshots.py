# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a server and of its volumes, as the command backups lists them.

Nothing of them is read.  How much of the disk an image proves is known if the
index of this host has both: the disk of the server and the cached image.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import hashlib
import logging
import os
from typing import Any

import numpy
from oslo_config import cfg
from oslo_utils import units

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage.index import store

LOG = logging.getLogger(__name__)

_NO_SOURCE = 'not a source: '


def of_volume(cloud: Any, volume: Any, age: Callable[[str], Any]
              ) -> list[tuple[Any, ...]]:
    """Return the rows of Cinder's snapshots of a volume, newest first.

    :param cloud: connection of openstacksdk
    :param age: returns the column of a time
    """
    found = sorted(cloud.block_storage.snapshots(volume_id=volume.id,
                                                 all_projects=True),
                   key=lambda one: one.created_at, reverse=True)
    return [(volume.id, 'volume snapshot', one.id, one.status,
             age(one.created_at), columns.size(one.size * units.Gi), '-',
             columns.text(''), 0, columns.text(''), columns.text(
                 _NO_SOURCE + 'its storage is that of the volume, and has '
                 'no SHA-256')) for one in found]


def of_server(cloud: Any, options: argparse.Namespace, conf: cfg.ConfigOpts,
              server: Any, age: Callable[[str], Any]
              ) -> list[tuple[Any, ...]]:
    """Return the rows of images that were made of a server.

    :param options: that name nova.conf
    """
    images = list(cloud.image.images(instance_uuid=server.id))
    shares = _shares(options, conf, server, images)
    rows: list[tuple[Any, ...]] = []
    for image in images:
        reason = _problem(image)
        share = shares.get(image.id)
        rows.append((
            '-', 'image', image.id, image.status, age(image.created_at),
            columns.size(image.size), '-',
            columns.text('') if reason else proves(share, 'not indexed'),
            0 if reason else 1, columns.text('' if reason else 'glance'),
            columns.text(reason)))
    return rows


def proves(share: float | None, why: str) -> columns.Formatted:
    """Return a column with per cent of a disk.

    :param share: 0 to 1
    :param why: it is not known, if it is None
    """
    if share is None:
        return columns.Formatted(None, 'unknown: ' + why)
    return columns.Formatted(100 * share, '%.0f %%' % (100 * share))


def _problem(image: Any) -> str:
    """Return why migrations do not read an image, '' if they do."""
    if not image.size:
        return _NO_SOURCE + ('it has no data, only the names of volume '
                             'snapshots')
    if (image.container_format, image.disk_format) != ('bare', 'raw'):
        return _NO_SOURCE + 'it is %s, %s; only raw images are read by ' \
            'ranges' % (image.disk_format, image.container_format)
    if image.status != 'active':
        return _NO_SOURCE + 'it is %s' % image.status
    return ''


def _shares(options: argparse.Namespace, conf: cfg.ConfigOpts, server: Any,
            images: list[Any]) -> dict[str, float]:
    """Return image ID -> share of the blocks of the disk that it has."""
    if not images:
        return {}
    path = conf.instances_path
    try:
        with configuration.open_index(options) as index:
            disk = _keys(index, os.path.join(path, server.id, 'disk'))
            if disk is None:
                return {}
            found = {one.id: _keys(index, os.path.join(
                path, conf.image_cache.subdirectory_name, hashlib.sha1(
                    one.id.encode(), usedforsecurity=False).hexdigest()))
                for one in images}
    except (errors.ConfigurationError, storage_errors.StorageError) as error:
        LOG.info('The index of this host is not used: %s', error)
        return {}
    return {name: float(numpy.isin(disk, keys).mean())
            for name, keys in found.items() if keys is not None}


def _keys(index: store.Index, path: str) -> numpy.ndarray | None:
    """Return the keys of a file, None if it has none."""
    keys = index.keys_of(path)
    return keys if keys is not None and len(keys) else None
