# SPDX-License-Identifier: Apache-2.0
"""Sends the agents the list of the images that every project may read.

Agents have no credentials of Keystone, so the engine reads the list.  Each
list that an agent gets replaces the one before.  What could not be read
completely is not sent, and agents forget a list that has become too old.
"""

from __future__ import annotations

from collections.abc import Callable
import concurrent.futures
import functools
import random
import time

from oslo_log import log as logging

from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors

LOG = logging.getLogger(__name__)

#: Seconds for an agent to take a list.
TIMEOUT = 10.0
#: Agents that are called at a time.
_CALLS = 8


class PublicImages:
    """:param cloud: engine.cloud.Cloud
    :param agents: client of the agents
    :param hosts: returns the names of hosts whose agents are up
    :param lifetime: seconds for which a list is sent
    :param is_stopping: whether to call no further agent
    """

    def __init__(self, cloud: clouds.Cloud, agents: api.AgentAPI,
                 hosts: Callable[[], list[str]], lifetime: float,
                 is_stopping: Callable[[], bool]) -> None:
        self._cloud = cloud
        self._agents = agents
        self._hosts = hosts
        self._lifetime = lifetime
        self._is_stopping = is_stopping

    def send(self) -> None:
        """Send all agents the list that Glance has now.

        :raises CloudUnavailable: there is no complete list; nothing is sent
        """
        end = time.monotonic() + self._lifetime
        images = self._cloud.public_images(disk_objects.MAX_PUBLIC + 1)
        if len(images) > disk_objects.MAX_PUBLIC:
            LOG.warning('Glance has more than %d public images. Only blocks '
                        'of the newest are used for all projects.',
                        disk_objects.MAX_PUBLIC)
            del images[disk_objects.MAX_PUBLIC:]
        hosts = self._hosts()
        # If there is not enough time for all, not the same ones go without.
        random.shuffle(hosts)
        with concurrent.futures.ThreadPoolExecutor(
                _CALLS, 'public-images') as pool:
            failures = list(filter(None, pool.map(
                functools.partial(self._send, images, end), hosts)))
        if failures:
            LOG.warning('%(failed)d of %(all)d hosts did not get the list of '
                        'public images, and use the one before until it is '
                        'too old: %(error)s',
                        {'failed': len(failures), 'all': len(hosts),
                         'error': failures[0]})

    def _send(self, images: list[str], end: float, host: str) -> str:
        """Return why a host did not get the list, '' if it did."""
        if self._is_stopping():
            return 'the engine stops'
        if time.monotonic() > end:
            return 'it took too long to send it to the others'
        try:
            self._agents.set_public_images({}, host, images)
        except errors.AgentUnavailable as error:
            return str(error)
        return ''
