# SPDX-License-Identifier: Apache-2.0
"""The client of cinder-backup-assist on the message bus."""

from __future__ import annotations

from typing import Any
from typing import TypeVar

from oslo_config import cfg
import oslo_messaging as messaging

from nova_dedup_migrate import deadline
from nova_dedup_migrate.backups import errors
from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.rpc import transport as rpc_transport

TOPIC = 'cinder_backup_assist'
#: Seconds for an answer; Cinder's database is asked for it.
TIMEOUT = 10.0
#: Seconds for an answer that takes no work.
PROMPT = 2.0
#: Of a time-out of oslo.messaging, which is that of the answer alone.
_MARGIN = 2.0
#: Of a sentence of another host.
_MAX_REASON = 1024

_BUS = deadline.Runner('the message bus of Cinder', 16)
_Reply = TypeVar('_Reply')


class BackupAssistAPI:
    """Client of the daemons.

    Version history:

    * 1.0 - load, find, open, close.

    :param transport: to the bus that the daemons use
    """

    def __init__(self, transport: messaging.RPCTransport) -> None:
        self._client = rpc_transport.get_client(transport, TIMEOUT,
                                                topic=TOPIC)

    @classmethod
    def from_conf(cls, conf: cfg.ConfigOpts) -> BackupAssistAPI:
        """Make a client as the configuration has it.

        :param conf: with conf.dedup_migrate registered
        """
        return cls(messaging.get_rpc_transport(
            conf, conf.dedup_migrate.backup_transport_url))

    def load(self, host: str) -> objects.DedupBackupLoad:
        """Return how busy the daemon of a host is."""
        return self._call(host, 'load', objects.DedupBackupLoad, PROMPT)

    def find(self, request: objects.DedupBackupFindRequest
             ) -> objects.DedupBackupFindReply:
        """Return the backups of a volume, the answer of any daemon."""
        return self._call(None, 'find', objects.DedupBackupFindReply,
                          TIMEOUT, request)

    def open(self, host: str, request: objects.DedupBackupOpenRequest
             ) -> objects.DedupBackupTicket:
        """Return permission to read a backup from the daemon of a host."""
        return self._call(host, 'open', objects.DedupBackupTicket, TIMEOUT,
                          request)

    def close(self, host: str, ticket: str) -> bool:
        """Take back a ticket; end its connection."""
        return self._call(host, 'close', bool, PROMPT,
                          objects.DedupBackupCloseRequest(ticket=ticket))

    def _call(self, host: str | None, method: str,
              reply_class: type[_Reply], timeout: float,
              request: Any = None) -> _Reply:
        name = host or 'any host'
        client = self._client.prepare(version='1.0', timeout=timeout)
        if host is not None:
            client = client.prepare(server=host)
        arguments = {} if request is None else {'request': request}
        try:
            reply = _BUS.run(timeout + _MARGIN, client.call, {}, method,
                             **arguments)
        except messaging.MessagingTimeout as error:
            raise errors.AssistUnavailable(
                host=name, reason='no answer within %g s' % timeout
            ) from error
        except messaging.MessageUndeliverable as error:
            raise errors.AssistUnavailable(
                host=name, reason='no daemon has been started there'
            ) from error
        except Exception as error:
            # Drivers let their libraries' errors through.
            raise _failure(name, error) from error
        if not isinstance(reply, reply_class):
            raise errors.AssistUnavailable(
                host=name, reason='its answer is malformed: it is no %s'
                % reply_class.__name__)
        return reply


#: What a daemon raises, by name, to refuse a request.
_REFUSALS = ('BackupRefused', 'DriverRefused', 'MalformedBackup',
             'MalformedChain', 'Overloaded', 'RequestRefused', 'StoreFailed',
             'TicketRefused')


def _failure(host: str, error: Exception) -> errors.AssistUnavailable:
    kind, text = type(error).__name__, str(error)
    if isinstance(error, messaging.RemoteError):
        kind, text = str(error.exc_type), str(error.value)
    kind = kind.removesuffix('_Remote')
    # of exceptions of Python in the daemon, a traceback follows
    text = (text.splitlines() or [''])[0][:_MAX_REASON]
    if kind in _REFUSALS:
        return errors.AssistRefused(host=host, reason=text)
    return errors.AssistUnavailable(
        host=host, reason='it failed with %s: %s' % (kind, text))
