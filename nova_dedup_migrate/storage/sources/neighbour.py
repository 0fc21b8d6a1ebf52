# SPDX-License-Identifier: Apache-2.0
"""Blocks that another host of the site has, found by that host's index."""

from nova_dedup_migrate.storage.sources import base
from nova_dedup_migrate.storage.sources import remote


class NeighbourSource(remote.RemoteSource):
    """The agent of a host that is neither source nor destination."""

    name = 'neighbour'
    cost = base.Cost(rate=100e6, latency=0.005)
