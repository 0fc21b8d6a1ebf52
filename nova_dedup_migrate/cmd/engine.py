# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate-engine: does what the API has stored.

Any number of them work on one database.  SIGTERM and SIGINT end one after
the steps under way; SIGHUP reads the options again that can be changed
without a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
import queue
import signal
import socket
import sys

from oslo_config import cfg
import oslo_messaging as messaging

from nova_dedup_migrate.cmd import controller
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import schema
from nova_dedup_migrate.engine import cloud
from nova_dedup_migrate.engine import service
from nova_dedup_migrate.rpc import transport

PROGRAM = service.BINARY
_STOP = (signal.SIGTERM, signal.SIGINT)


def make(conf: cfg.ConfigOpts, database: facade.Database) -> service.Engine:
    """Return an Engine as the configuration has it.

    Agents are listened to if there is a transport_url.
    """
    messaging.set_transport_defaults(transport.EXCHANGE)
    # It registers the option, and connects to nothing yet.
    bus: messaging.RPCTransport | None = transport.get_transport(conf)
    where = conf.get_location('transport_url')
    if bus is not None and (where is None or where.location in (
            cfg.Locations.opt_default, cfg.Locations.set_default)):
        bus.cleanup()
        bus = None
    return service.Engine(conf, database, cloud.Cloud.from_conf(conf),
                          socket.gethostname(), controller.release(), bus)


def main(argv: Sequence[str] | None = None) -> int:
    """Run an engine; return the exit status."""
    conf = controller.configure(
        cfg.CONF, sys.argv[1:] if argv is None else argv, PROGRAM)
    signals = listen()
    database = facade.Database(conf)
    try:
        schema.require(database)
    except Exception as error:
        print('%s: %s' % (PROGRAM, error), file=sys.stderr)
        return 1
    engine = make(conf, database)
    engine.start()
    while signals.get() == signal.SIGHUP:
        conf.mutate_config_files()
    for number in _STOP:
        signal.signal(number, signal.SIG_DFL)
    engine.stop()
    return 0


def listen() -> queue.SimpleQueue[int]:
    """Return the queue that gets the signals of this process."""
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (*_STOP, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.put(number))
    return signals


if __name__ == '__main__':
    sys.exit(main())
