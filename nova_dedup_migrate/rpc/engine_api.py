# SPDX-License-Identifier: Apache-2.0
"""The client of the engines of the controller, for agents."""

from __future__ import annotations

from oslo_config import cfg
import oslo_messaging as messaging

from nova_dedup_migrate import deadline
from nova_dedup_migrate.conf import upgrade_levels
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects  # noqa: F401 registers
from nova_dedup_migrate.rpc import transport as rpc_transport

_BUS = deadline.Runner('the message bus', 4)
#: Seconds for an engine to store something.
TIMEOUT = 10.0
#: Seconds that a call may take beyond that, if the bus is away.
_MARGIN = 2.0


class EngineAPI:
    """Each method calls whichever engine is first.

    If none answers, or it refuses, it raises errors.EngineUnavailable and
    nothing else.

    Version history:

    * 1.0 - put_report, put_host.

    :param transport: of rpc.transport.get_transport
    :param version_cap: the latest version all engines know
    """

    def __init__(self, transport: messaging.RPCTransport,
                 version_cap: str | None = None) -> None:
        self._client = rpc_transport.get_client(
            transport, TIMEOUT, version_cap, rpc_transport.ENGINE_TOPIC)

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts,
                  transport: messaging.RPCTransport) -> EngineAPI:
        upgrade_levels.register_opts(conf)
        return cls(transport, conf.upgrade_levels.dedup_migrate_engine)

    def put_report(self, report: objects.DedupReport) -> None:
        """Return when an engine has stored a report, this or a newer one.

        :raises EngineRefused: it will never take it
        """
        self._call('put_report', report=report)

    def put_host(self, host: objects.DedupHostReport) -> None:
        """Return when an engine has stored what is known of a host."""
        self._call('put_host', host=host)

    def _call(self, method: str, **arguments: objects.DedupObject) -> None:
        try:
            _BUS.run(TIMEOUT + _MARGIN, self._client.call, {}, method,
                     **arguments)
        except Exception as error:
            # Drivers let their libraries' errors through.
            name, text = type(error).__name__, str(error)
            if isinstance(error, messaging.RemoteError):
                name, text = str(error.exc_type), str(error.value)
            name = name.removesuffix('_Remote')
            reason = (text.splitlines() or [name])[0]
            if name in ('ReportRefused', 'MalformedMessage'):
                raise errors.EngineRefused(reason=reason) from error
            raise errors.EngineUnavailable(reason=reason) from error
