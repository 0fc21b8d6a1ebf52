# SPDX-License-Identifier: Apache-2.0
"""A synchronous QMP connection over the asyncio library qemu.qmp.

One daemon thread runs the event loop of all connections; callers are
ordinary threads.  The thread lives as long as the program.
"""

import asyncio
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Mapping
import concurrent.futures
import functools
import socket
import threading
import typing

from qemu.qmp import ConnectError
from qemu.qmp import ExecInterruptedError
from qemu.qmp import ExecuteError
from qemu.qmp import QMPClient
from qemu.qmp import QMPError
from qemu.qmp import Runstate
from qemu.qmp import StateError

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor.events import EventLog

_Result = typing.TypeVar('_Result')


@functools.cache
def background_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop; start its thread at the first call."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name='qmp',
                     daemon=True).start()
    return loop


def call(function: Callable[..., _Result], *args: typing.Any) -> _Result:
    """Run a plain function in the background thread, return its result."""
    async def run() -> _Result:
        return function(*args)
    return asyncio.run_coroutine_threadsafe(
        run(), background_loop()).result()


class QmpConnection:
    """A connection to one QEMU.

    :param name: of the guest, for error messages
    :param events: EventLog that gets every event of the connection
    """

    def __init__(self, name: str, events: EventLog) -> None:
        self._name = name
        self._events = events
        # Both are there from connect() on.
        self._client: typing.Any = None
        self._reader: typing.Any = None
        self._fd_lock = threading.Lock()

    def connect(self, sock: socket.socket, timeout: float = 30.0) -> None:
        """Negotiate over sock, a connected unix socket we then own.

        :raises QmpDisconnected: QEMU closed its end
        :raises QmpTimeout:
        """
        self._run(self._connect(sock), 'qmp_capabilities', timeout)

    async def _connect(self, sock: socket.socket) -> None:
        self._client = QMPClient(self._name)
        # A QEMU that ends is nothing to report, it is how guests end.
        self._client.logger.setLevel('CRITICAL')
        self._reader = asyncio.ensure_future(self._read_events())
        await self._client.connect(sock)

    async def _read_events(self) -> None:
        """Move events into the log until the connection is gone."""
        client = self._client
        next_event = asyncio.ensure_future(client.events.get())
        while True:
            changed = asyncio.ensure_future(client.runstate_changed())
            await asyncio.wait({next_event, changed},
                               return_when=asyncio.FIRST_COMPLETED)
            if next_event.done():
                self._record(next_event.result())
                for event in client.events.clear():
                    self._record(event)
                next_event = asyncio.ensure_future(client.events.get())
            if changed.done() and client.runstate in (
                    Runstate.DISCONNECTING, Runstate.IDLE):
                break
            changed.cancel()
        next_event.cancel()
        for event in client.events.clear():
            self._record(event)
        self._events.close()

    def _record(self, event: Mapping[str, object]) -> None:
        name, data = event.get('event'), event.get('data', {})
        if isinstance(name, str) and isinstance(data, dict):
            self._events.add(name, data)

    def execute(self, command: str, arguments: dict | None = None,
                timeout: float = 60.0, oob: bool = False) -> typing.Any:
        """Run a command; see Guest.qmp for the errors.

        :param oob: out of band, for a QEMU whose main loop may hang
        """
        return self._run(
            self._client.execute(command, arguments or None, oob=oob),
            command, timeout)

    def execute_with_fd(self, fd: int, command: str, arguments: dict,
                        timeout: float = 60.0) -> typing.Any:
        """Run a command that takes a file descriptor."""
        async def run() -> typing.Any:
            self._client.send_fd_scm(fd)
            return await self._client.execute(command, arguments)
        # QEMU keeps only the last descriptor it was sent.
        with self._fd_lock:
            return self._run(run(), command, timeout)

    def close(self) -> None:
        """Close the connection; idempotent."""
        client, self._client = self._client, None
        if client is not None:
            self._run(self._close(client), 'close', 10.0)

    async def _close(self, client: QMPClient) -> None:
        try:
            await client.disconnect()
        except (QMPError, EOFError, OSError):
            # the very errors that ended it before
            pass
        await self._reader

    def _run(self, coroutine: Awaitable, command: str,
             timeout: float) -> typing.Any:
        async def run() -> typing.Any:
            return await asyncio.wait_for(coroutine, timeout)

        future = asyncio.run_coroutine_threadsafe(run(), background_loop())
        try:
            return future.result()
        except ExecuteError as error:
            known = error.error_class != 'CommandNotFound'
            raise (errors.QmpError if known else errors.CommandNotFound)(
                command=command, error_class=str(error.error_class),
                description=str(error)) from error
        except (TimeoutError, asyncio.TimeoutError,
                concurrent.futures.TimeoutError) as error:
            raise errors.QmpTimeout(command=command,
                                    seconds=timeout) from error
        except (ExecInterruptedError, StateError, ConnectError, EOFError,
                OSError) as error:
            raise errors.QmpDisconnected(command=command) from error
