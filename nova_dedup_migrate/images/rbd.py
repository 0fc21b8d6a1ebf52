# SPDX-License-Identifier: Apache-2.0
"""Images in a Ceph cluster, through librbd's own Python modules.

They are packages of the distribution (python3-rados, python3-rbd) and
need not be there.  The monitors are those of the host's configuration,
never those of a request.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import functools
import importlib
import random
from typing import Any

from nova_dedup_migrate import errors
from nova_dedup_migrate.images import rates

#: Seconds for each request to the cluster.
TIMEOUT = 5


class RbdUnavailable(errors.DedupMigrateError):
    """An image in a Ceph cluster cannot be read."""

    template = 'the RBD image {image} cannot be used: {reason}'


def identify(path: str, user: str | None, key: str | None, conf: str
             ) -> tuple[str, int]:
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


def read_rates(path: str, user: str | None, key: str | None, conf: str,
               limit: int, seconds: float
               ) -> tuple[float | None, float | None]:
    """Return both rates, as operations.read_rates.

    Parts of the image that hold nothing are left out.
    """
    with _opened(path, user, key, conf) as (_, _, image):
        extents: list[tuple[int, int]] = []
        image.diff_iterate(0, image.size(), None, functools.partial(
            _collect, extents), whole_object=True)
        source = random.SystemRandom()
        offsets = [offset for begin, end in extents
                   for offset in range(begin, end, rates.REQUEST)]
        source.shuffle(offsets)
        pages = [_page(source, *source.choice(extents))
                 for _ in range(rates.PAGES if extents else 0)]
        size = image.size()

        def read(length: int, offset: int) -> int:
            return len(image.read(offset, min(length, size - offset)))

        return (
            rates.timed(functools.partial(read, rates.REQUEST),
                        sorted(offsets[:limit // rates.REQUEST]), seconds),
            rates.timed(functools.partial(read, rates.PAGE), pages,
                        rates.SCATTERED * seconds))


def _page(source: random.Random, begin: int, end: int) -> int:
    """Return the offset of a page between two bytes, by chance."""
    return begin + source.randrange(
        -(-(end - begin) // rates.PAGE)) * rates.PAGE


def _collect(extents: list[tuple[int, int]], offset: int, length: int,
             exists: bool) -> None:
    if exists:
        extents.append((offset, offset + length))


@contextlib.contextmanager
def _opened(path: str, user: str | None, key: str | None, conf: str
            ) -> Iterator[tuple[Any, int, Any]]:
    """Give the cluster, the number of the pool and the image."""
    try:
        rados = importlib.import_module('rados')
        rbd = importlib.import_module('rbd')
    except ImportError as error:
        raise RbdUnavailable(
            image=path, reason='install python3-rados and python3-rbd in '
            'the Python environment of this program: %s' % error) from error
    pool, *namespace, name = (path.split('/') if 1 <= path.count('/') <= 2
                              else ('', path))
    if not pool or not name:
        raise RbdUnavailable(image=path, reason='it is not pool/image')
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
        raise RbdUnavailable(image=path, reason=error) from error
