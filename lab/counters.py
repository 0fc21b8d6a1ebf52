# SPDX-License-Identifier: Apache-2.0
"""What the services of a lab have done so far: counters, and threads.

RabbitMQ's and MariaDB's own counters, of all services.  Two readings and
what an idle cloud does in a second give what was done on behalf of
something.
"""

import dataclasses
import pathlib
import re
import threading
import time

from lab import errors
from lab.services import rabbitmq

_CTL = '/usr/lib/rabbitmq/bin/rabbitmqctl'
# Messages that publishers sent to the exchanges, over all protocols.
_RECEIVED = ('lists:sum([maps:get(messages_received_total, C, 0) || C <- '
             'maps:values(rabbit_global_counters:overview())]).')
_QUESTIONS = "SHOW GLOBAL STATUS LIKE 'Questions'"
_THREADS = re.compile(r'^Threads:\s+(\d+)', re.MULTILINE)
_SAMPLE_S = 0.2
_CTL_S = 300.0


@dataclasses.dataclass(frozen=True)
class Counters:
    """:ivar time: time.monotonic()
    :ivar messages: published to RabbitMQ: RPC calls, casts and replies
    :ivar queries: that MariaDB was sent
    """

    time: float
    messages: int
    queries: int


def read(cloud):
    """Return the Counters now.

    :raises LabError: a counter cannot be read
    """
    host = cloud.control
    # It starts a runtime of its own, beside guests that are emulated.
    messages = host.run([_CTL, 'eval', _RECEIVED], timeout=_CTL_S,
                        env=rabbitmq.ENVIRONMENT).stdout
    queries = host.run(
        ['mariadb', '--no-defaults', '--socket=/var/lib/mysql/socket',
         '--user=root', '--batch', '--skip-column-names',
         '--execute=' + _QUESTIONS]).stdout
    try:
        return Counters(time.monotonic(), int(messages.split()[-1]),
                        int(queries.split()[-1]))
    except (ValueError, IndexError) as error:
        raise errors.LabError(
            'the counters of RabbitMQ and MariaDB cannot be read: %r, %r' % (
                messages, queries)) from error


def busy(idle, before, after):
    """Return (messages, queries) beyond what an idle cloud does.

    :param idle: two Counters with nothing but the cloud's own between them
    """
    quiet = idle[1].time - idle[0].time
    seconds = after.time - before.time
    return tuple(
        getattr(after, name) - getattr(before, name) - seconds / quiet * (
            getattr(idle[1], name) - getattr(idle[0], name))
        for name in ('messages', 'queries'))


def threads(process):
    """Return how many threads a Process has, 0 if it is gone."""
    try:
        text = pathlib.Path('/proc/%d/status' % process.pid).read_text()
    except OSError:
        return 0
    return int(_THREADS.search(text)[1])


class ThreadSampler:
    """Samples the number of threads of processes until it is left.

        with ThreadSampler({'compute1': process}) as sampler: ...
        sampler.most        # {'compute1': 57}
    """

    def __init__(self, processes):
        self._processes = processes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.most = dict.fromkeys(processes, 0)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc_info):
        self._ended.set()
        self._thread.join()

    def _run(self):
        while True:
            for name, process in self._processes.items():
                self.most[name] = max(self.most[name], threads(process))
            if self._ended.wait(_SAMPLE_S):
                return
