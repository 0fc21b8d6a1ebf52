# SPDX-License-Identifier: Apache-2.0
"""The source's half: claims that only a host with the same disk can prove."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import logging
import os
import secrets
import stat
import threading
from typing import Any

from nova_dedup_migrate import deadline
from nova_dedup_migrate.identity import beside
from nova_dedup_migrate.identity import blockids
from nova_dedup_migrate.identity import filesystem
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.images import access
from nova_dedup_migrate.images import hanging
from nova_dedup_migrate.images import locks
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import rbd
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)

#: Seconds a migration waits until its locks and files are gone.
WITHDRAW = 3.0


class Challenge:
    """What goes into the DedupFactsRequest.

    It holds while the context is entered, which must last until the
    answer is there: locks and files go with it.

    :ivar disks: list of DedupDiskQuery
    :ivar sample_key: of the same request
    """

    def __init__(self, disks: list[objects.DedupDiskQuery],
                 sample_key: str) -> None:
        self.disks = disks
        self.sample_key = sample_key


@contextlib.contextmanager
def challenge(disks: Sequence[nodes.Disk], site: nodes.Site | None = None,
              timeout: float = 10.0) -> Iterator[Challenge]:
    """Give a Challenge for the disks of an instance that runs here.

    It raises nothing on account of the disks: what cannot be looked at
    is claimed without a proof, and the destination will not take it for
    the same.

    :param disks: sequence of nodes.Disk
    :param site: nodes.Site
    :param timeout: seconds for all; a hung file system is left behind
    """
    key = secrets.token_hex(32)
    worker = _Worker(site or nodes.Site(), key)
    try:
        try:
            queries = hanging.STORAGE.run(timeout, worker.queries, disks)
        except deadline.Late as late:
            LOG.warning('No disk is proven to be the same at the '
                        'destination: %s. Check the storage of this host.',
                        late)
            unproven = functools.partial(_claim, note=str(late))
            queries = [_query(disk, unproven) for disk in disks]
        yield Challenge(queries, key)
    finally:
        worker.close()


class _Worker:
    """Makes claims in a thread that may be left behind."""

    def __init__(self, site: nodes.Site, key: str) -> None:
        self._site = site
        self._key = key
        self._stack = contextlib.ExitStack()
        self._guard = threading.Lock()
        self._closed = False

    def queries(self, disks: Sequence[nodes.Disk]
                ) -> list[objects.DedupDiskQuery]:
        return [_query(disk, self._look) for disk in disks]

    def close(self) -> None:
        """Withdraw all; also what a late thread is about to make."""
        with self._guard:
            self._closed = True
            stack = self._stack.pop_all()
        try:
            hanging.STORAGE.run(WITHDRAW, stack.close)
        except (deadline.Late, OSError) as error:
            LOG.warning('Locks and files that prove disks to be the same '
                        'are left beside them: %s. Check the storage of '
                        'this host.', error)

    def _keep(self, release: Callable[[], None]) -> None:
        with self._guard:
            if not self._closed:
                self._stack.callback(release)
                return
        release()

    def _look(self, node: nodes.Node) -> objects.DedupNodeClaim:
        looks = {'file': self._file, 'block': self._block, 'rbd': self._rbd}
        if node.kind not in looks:
            return _claim(node, note='disks of this kind are not supported')
        try:
            return _claim(node, **looks[node.kind](node))
        except (OSError, ValueError, paths.PathRefused,
                rbd.RbdUnavailable) as error:
            return _claim(node, note='the source: %s' % error)

    def _file(self, node: nodes.Node) -> dict[str, Any]:
        status = os.stat(node.path)
        if not stat.S_ISREG(status.st_mode):
            raise paths.PathRefused(node.path, 'it is no regular file')
        found = {'size': status.st_size, 'inode': status.st_ino,
                 'filesystem': filesystem.describe(status.st_dev)}
        notes = [self._lock(node, found), self._put_beside(node, found)]
        if (found['filesystem'] is not None
                and 'challenge_name' not in found):
            notes.append(self._sample(node, found))
        return {**found, 'note': '; '.join(filter(None, notes))}

    def _lock(self, node: nodes.Node, found: dict[str, Any]) -> str | None:
        offset = locks.draw()
        try:
            self._keep(access.hold_lock(node.path, self._site.roots, offset))
        except OSError as error:
            return 'the source cannot lock it: %s' % error
        found['lock_offset'] = offset
        return None

    def _put_beside(self, node: nodes.Node, found: dict[str, Any]
                    ) -> str | None:
        made = contextlib.ExitStack()
        try:
            name, content = made.enter_context(beside.made(node.path))
        except OSError as error:
            return 'the source cannot write beside it: %s' % error
        self._keep(made.close)
        found.update(challenge_name=name, challenge_content=content)
        return None

    def _sample(self, node: nodes.Node, found: dict[str, Any]
                ) -> str | None:
        try:
            found['samples'] = access.sample(node.path, self._site.roots,
                                             self._key)
        except OSError as error:
            return 'the source cannot read it: %s' % error
        return None

    def _block(self, node: nodes.Node) -> dict[str, Any]:
        status = os.stat(node.path)
        if not stat.S_ISBLK(status.st_mode):
            raise paths.PathRefused(node.path, 'it is no block device')
        names = blockids.identifiers(status.st_rdev)
        found = {'identifiers': names[:objects.MAX_IDENTIFIERS],
                 'size': blockids.size(status.st_rdev)}
        if names and not any(map(blockids.is_unique, names)):
            found['samples'] = access.sample(
                node.path, self._site.roots, self._key, block=True)
        return found

    def _rbd(self, node: nodes.Node) -> dict[str, Any]:
        name, size = rbd.identify(node.path, node.user,
                                  self._site.key(node.secret),
                                  self._site.ceph_conf)
        return {'identifiers': [name], 'size': size}


def _query(disk: nodes.Disk,
           look: Callable[[nodes.Node], objects.DedupNodeClaim]
           ) -> objects.DedupDiskQuery:
    if len(disk.chain) > objects.MAX_CHAIN:
        chain = [_claim(nodes.Node('other', disk.target),
                        note='its chain has more than %d images'
                        % objects.MAX_CHAIN)]
    else:
        chain = [look(node) for node in disk.chain]
    return objects.DedupDiskQuery(target=disk.target, chain=chain)


def _claim(node: nodes.Node, note: str = '', **found: Any
           ) -> objects.DedupNodeClaim:
    """Make a claim; what the bus does not take is nothing we know."""
    note = ''.join(c if c.isprintable() else '?'
                   for c in note[:objects.MAX_REASON])
    try:
        return objects.DedupNodeClaim(
            kind=node.kind, path=node.destination or node.path,
            user=node.user, secret=node.secret, note=note, **found)
    except ValueError as error:
        return objects.DedupNodeClaim(
            kind='other', path='', note=str(error)[:objects.MAX_REASON])
