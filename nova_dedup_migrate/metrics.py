# SPDX-License-Identifier: Apache-2.0
"""The listener that Prometheus reads, of engines and agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oslo_log import log as logging
import prometheus_client

LOG = logging.getLogger(__name__)


def listen(address: str, registry: Any) -> Callable[[], None]:
    """Serve a registry; return what ends it.

    A port that is taken is a warning: metrics are no reason not to work.

    :param address: as host:port or [host]:port; '' for nowhere
    """
    if not address:
        return lambda: None
    host, _, port = address.rpartition(':')
    try:
        server, thread = prometheus_client.start_http_server(
            int(port), host.strip('[]'), registry)
    except (OSError, ValueError) as error:
        LOG.warning('There are no metrics: cannot listen at %(address)s: '
                    '%(error)s. Check the option metrics_listen.',
                    {'address': address, 'error': error})
        return lambda: None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join(5)

    return stop
