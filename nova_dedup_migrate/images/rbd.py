# SPDX-License-Identifier: Apache-2.0
"""Images in a Ceph cluster, through librbd's own Python modules.

They are packages of the distribution (python3-rados, python3-rbd) and
need not be there.  The monitors are those of the host's configuration,
never those of a request.
"""

import contextlib
import functools
import importlib
import random

from nova_dedup_migrate.images import rates

#: Seconds for anything the cluster is asked.
TIMEOUT = 5


class RbdUnavailable(Exception):
    """The image cannot be looked at, and why."""


def identify(path, user, key, conf):
    """Return what names an image in the world, and its size in bytes.

    :param path: pool/image or pool/namespace/image
    :param user: Ceph's name of the client, without 'client.', or None
    :param key: its key; None for the host's keyring
    :param conf: path of ceph.conf, '' for the usual ones
    :raises RbdUnavailable:
    """
    with _opened(path, user, key, conf) as (cluster, pool, image):
        namespace = path.split('/')[1:-1]
        return ('/'.join([cluster.get_fsid(), str(pool), *namespace,
                          image.id()]), image.size())


def read_rate(path, user, key, conf, limit, seconds):
    """Return bytes per second as rates.measure.

    Parts of the image that hold nothing are left out.
    """
    with _opened(path, user, key, conf) as (_, _, image):
        extents = []
        image.diff_iterate(0, image.size(), None, functools.partial(
            _collect, extents), whole_object=True)
        offsets = [offset for begin, end in extents
                   for offset in range(begin, end, rates.REQUEST)]
        random.SystemRandom().shuffle(offsets)
        size = image.size()
        return rates.timed(
            lambda offset: len(image.read(
                offset, min(rates.REQUEST, size - offset))),
            sorted(offsets[:limit // rates.REQUEST]), seconds)


def _collect(extents, offset, length, exists):
    if exists:
        extents.append((offset, offset + length))


@contextlib.contextmanager
def _opened(path, user, key, conf):
    """Give the cluster, the number of the pool and the image."""
    try:
        rados = importlib.import_module('rados')
        rbd = importlib.import_module('rbd')
    except ImportError as error:
        raise RbdUnavailable(
            'python3-rados and python3-rbd are needed: %s' % error) from error
    pool, *namespace, name = (path.split('/') if 1 <= path.count('/') <= 2
                              else ('', path))
    if not pool or not name:
        raise RbdUnavailable('%s is not pool/image' % path)
    options = {'client_mount_timeout': str(TIMEOUT),
               'rados_mon_op_timeout': str(TIMEOUT),
               'rados_osd_op_timeout': str(TIMEOUT)}
    if key:
        options['key'] = key
    try:
        with rados.Rados(rados_id=user or None, conffile=conf,
                         conf=options) as cluster, \
                cluster.open_ioctx(pool) as ioctx:
            ioctx.set_namespace(namespace[0] if namespace else '')
            with rbd.Image(ioctx, name, read_only=True) as image:
                yield cluster, cluster.pool_lookup(pool), image
    except (rados.Error, rbd.Error) as error:
        raise RbdUnavailable('Ceph says: %s' % error) from error
