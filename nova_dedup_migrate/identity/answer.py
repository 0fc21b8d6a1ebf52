# SPDX-License-Identifier: Apache-2.0
"""The destination's half: finding out whether an image is the same.

Of each kind one thing must be shown; that names or content agree is
never enough for a file.

==========  ===========================================================
kind        the same image, if
==========  ===========================================================
file        the byte the source locked is locked here (locks.py); or
            the source's challenge is beside it, on the same file
            system, and the inode numbers agree (beside.py); or both
            are on the network file system of the same name, and inode
            numbers and samples agree
block       they have a name in common that is unique in the world, and
            the size; or any name, the size and the samples
rbd         cluster, pool and the image's ID agree
==========  ===========================================================
"""

from __future__ import annotations

import os
import stat
from typing import Any

from nova_dedup_migrate.identity import beside
from nova_dedup_migrate.identity import blockids
from nova_dedup_migrate.identity import filesystem
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.images import access
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import rbd
from nova_dedup_migrate.rpc import objects

#: Whether it is the same image, why (not), and the size of what the
#: destination has there, None if it has nothing a migration fills.
Look = tuple[bool, str, int | None]


def answer(query: objects.DedupDiskQuery, key: str | None,
           site: nodes.Site) -> objects.DedupDiskAnswer:
    """Return a DedupDiskAnswer without a rate.

    :param query: DedupDiskQuery
    :param key: sample_key of the request
    :param site: nodes.Site, its roots not None
    """
    looks = [look(claim, key, site) for claim in query.chain]
    chain = [objects.DedupNodeAnswer(same=same, reason=cut(reason))
             for same, reason, _ in looks]
    return objects.DedupDiskAnswer(
        target=query.target, chain=chain,
        **_conclude([claim.path for claim in query.chain], looks))


def look(claim: objects.DedupNodeClaim, key: str | None,
         site: nodes.Site) -> Look:
    """Compare one image with what the destination has; return a Look."""
    if claim.kind not in _LOOKS:
        return False, _unproven(claim, 'it is of no known kind'), None
    try:
        return _LOOKS[claim.kind](claim, key, site)
    except FileNotFoundError:
        return False, 'the destination has no %s' % claim.path, None
    except (OSError, paths.PathRefused, rbd.RbdUnavailable) as error:
        return False, 'the destination: %s' % error, None


def _conclude(names: list[str], looks: list[Look]) -> dict[str, Any]:
    if not looks:
        return {'copy': 'none', 'reason': 'the source names no image'}
    different = [(name, reason) for name, (same, reason, _)
                 in zip(names, looks, strict=True) if not same]
    size = looks[0][2]
    if not different:
        return {'copy': 'shared', 'size': size,
                'reason': cut(looks[0][1])}
    name, reason = different[0]
    if looks[0][0]:
        # The top is shared, so no migration fills what is below it.
        return {'copy': 'none', 'size': size, 'reason': cut(
            'its backing image %s is not the same: %s' % (name, reason))}
    return {'copy': 'none' if size is None else 'own', 'size': size,
            'reason': cut(reason)}


def _file(claim: objects.DedupNodeClaim, key: str | None,
          site: nodes.Site) -> Look:
    status = _status(claim, site)
    same, reason = _compare_files(claim, key, site, status)
    return same, reason, status.st_size


def _compare_files(claim: objects.DedupNodeClaim, key: str | None,
                   site: nodes.Site, status: os.stat_result
                   ) -> tuple[bool, str]:
    doubts = []
    if claim.lock_offset is not None:
        try:
            if access.is_locked(claim.path, site.roots, claim.lock_offset):
                return True, "the source's lock is on it"
            doubts.append("the source's lock is not on it")
        except OSError as error:
            doubts.append("the source's lock cannot be checked: %s" % error)
    if claim.inode is None or claim.inode != status.st_ino:
        doubts.append('it is another file of that name')
        return False, _unproven(claim, *doubts)
    if (site.roots is not None
            and None not in (claim.challenge_name, claim.challenge_content)):
        try:
            if beside.is_there(claim.path, site.roots, status.st_dev,
                               claim.challenge_name,
                               claim.challenge_content):
                return True, "the source's challenge is beside it"
        except FileNotFoundError:
            pass
        doubts.append("the source's challenge is not beside it")
    if (key is not None
            and None not in (claim.filesystem, claim.samples)):
        if (filesystem.describe(status.st_dev) == claim.filesystem
                and access.sample(claim.path, site.roots, key)
                == claim.samples):
            return True, ('it has the same inode and samples on %s'
                          % claim.filesystem)
        doubts.append('its file system or samples differ')
    return False, _unproven(claim, *doubts)


def _status(claim: objects.DedupNodeClaim, site: nodes.Site
            ) -> os.stat_result:
    with paths.open_path(claim.path, site.roots) as handle:
        status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        raise paths.PathRefused(claim.path, 'it is no regular file')
    return status


def _block(claim: objects.DedupNodeClaim, key: str | None,
           site: nodes.Site) -> Look:
    with paths.open_device(claim.path, site.roots) as handle:
        device = os.fstat(handle).st_rdev
    size = blockids.size(device)
    common = [name for name in blockids.identifiers(device)
              if name in claim.identifiers]
    if not common or claim.size != size:
        return False, _unproven(claim, 'it is another device'), size
    unique = [name for name in common if blockids.is_unique(name)]
    if unique:
        return True, 'it is %s as well' % unique[0], size
    if (key is not None and claim.samples is not None
            and claim.samples == access.sample(claim.path, site.roots, key,
                                               block=True)):
        return True, ('it is %s as well and has the same samples'
                      % common[0]), size
    return False, _unproven(
        claim, 'it is %s as well, but that name need not be unique and '
        'the samples differ' % common[0]), size


def _rbd(claim: objects.DedupNodeClaim, key: str | None,
         site: nodes.Site) -> Look:
    name, _ = rbd.identify(claim.path, claim.user, site.key(claim.secret),
                           site.ceph_conf)
    if name in claim.identifiers:
        return True, 'it is %s as well' % name, None
    return False, _unproven(claim, 'it is %s here' % name), None


def _unproven(claim: objects.DedupNodeClaim, *doubts: str) -> str:
    return '%s is not proven to be the same: %s' % (
        claim.path or 'the image', '; '.join(filter(None, (*doubts,
                                                          claim.note))))


def cut(text: str) -> str:
    """Return a reason as the bus takes it."""
    return ''.join(c if c.isprintable() else '?'
                   for c in text[:objects.MAX_REASON])


_LOOKS = {'file': _file, 'block': _block, 'rbd': _rbd}
