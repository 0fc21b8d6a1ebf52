# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate serve: API and engine in one process.

For small sites: the database is SQLite in a file unless another one is
configured, and its schema is brought up at the start.  Larger ones run the
WSGI module under uWSGI and engines of their own.
"""

from __future__ import annotations

import argparse
import signal
import socketserver
import threading
from typing import Any
from wsgiref import simple_server

from cliff import command
from oslo_config import cfg
from oslo_log import log as logging

from nova_dedup_migrate.cmd import errors

LOG = logging.getLogger(__name__)

#: Requests that are served at a time; more wait.
_THREADS = 16
#: Seconds for a client to send its request.
_TIMEOUT = 30


class _Server(socketserver.ThreadingMixIn, simple_server.WSGIServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._turns = threading.BoundedSemaphore(_THREADS)

    def process_request_thread(self, *arguments: Any) -> None:
        with self._turns:
            super().process_request_thread(*arguments)


class _Handler(simple_server.WSGIRequestHandler):
    timeout = _TIMEOUT

    def log_message(self, format: str, *arguments: Any) -> None:
        LOG.debug('%s %s', self.client_address[0], format % arguments)


def make_server(address: str, port: int, application: Any
                ) -> simple_server.WSGIServer:
    """Return an HTTP server of a WSGI application.

    :param port: 0 for any
    """
    return simple_server.make_server(address, port, application, _Server,
                                     _Handler)


class Serve(command.Command):
    """Run the API and an engine of the controller in one process."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--bind', metavar='ADDRESS', default='127.0.0.1',
            help='address to listen at (default: 127.0.0.1)')
        parser.add_argument(
            '--port', metavar='PORT', type=int, default=8785,
            help='port to listen at (default: 8785)')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        # They need packages that a compute host does not have.
        from nova_dedup_migrate.api import deploy
        from nova_dedup_migrate.cmd import controller
        from nova_dedup_migrate.cmd import engine as engines
        from nova_dedup_migrate.db import facade
        from nova_dedup_migrate.db import schema

        options = self.app.options
        names = []
        for option, values in (('--config-file', options.config_file),
                               ('--config-dir', options.config_dir)):
            for value in values:
                names += [option, value]
        try:
            conf = controller.configure(cfg.CONF, names,
                                        'nova-dedup-migrate')
        except cfg.Error as error:
            raise errors.ConfigurationError(reason=error) from error
        signals = engines.listen()
        database = facade.Database(conf)
        schema.sync(database)
        engine = engines.make(conf, database)
        server = make_server(parsed_args.bind, parsed_args.port,
                             deploy.deploy(conf, database))
        thread = threading.Thread(target=server.serve_forever, daemon=True,
                                  name='api')
        thread.start()
        engine.start()
        LOG.info('The API listens at http://%s:%d', parsed_args.bind,
                 server.server_port)
        while signals.get() == signal.SIGHUP:
            conf.mutate_config_files()
        server.shutdown()
        server.server_close()
        engine.stop()
        return 0
