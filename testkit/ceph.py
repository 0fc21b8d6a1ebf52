# SPDX-License-Identifier: Apache-2.0
"""A Ceph cluster of one monitor and one OSD in memory, for a test.

Without a manager: nothing here needs its statistics.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import time
import uuid

POOL = 'test'
_PROGRAMS = ('ceph', 'ceph-mon', 'ceph-osd', 'monmaptool', 'rbd')
_START_S = 90.0
#: Bytes the OSD keeps in memory at most.
_SIZE = 256 << 20
_CONF = """\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}]
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
mon data avail crit = 1
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = {size}
mon data = {directory}/mon
osd data = {directory}/osd
admin socket = {directory}/$name.asok
crash dir = {directory}
log to stderr = true
err to stderr = true
log to file = false
mon cluster log to file = false
ms bind ipv6 = false
public addr = 127.0.0.1
"""


def missing():
    """Return the programs that are not installed."""
    return [name for name in _PROGRAMS if shutil.which(name) is None]


class Cluster:
    """
    :param directory: for its files; short, as sockets are in it
    :ivar conf: path of ceph.conf, for clients
    """

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self.conf = self._directory / 'ceph.conf'
        self._fsid = str(uuid.uuid4())
        self._processes = []

    def run(self, *argv, timeout=_START_S):
        """Run a program of Ceph's; return what it prints.

        :raises subprocess.SubprocessError: it failed or took too long
        """
        done = subprocess.run(
            [argv[0], '-c', self.conf, *argv[1:]], check=True, text=True,
            capture_output=True, timeout=timeout, cwd=self._directory)
        return done.stdout

    def start(self):
        """Start it all, with an empty pool.

        :raises subprocess.SubprocessError, TimeoutError: it does not start
        """
        port = _free_port()
        self.conf.write_text(_CONF.format(
            fsid=self._fsid, port=port, size=_SIZE,
            directory=self._directory))
        monmap = self._directory / 'monmap'
        subprocess.run(
            ['monmaptool', '--create', '--fsid', self._fsid, '--addv', 'a',
             f'[v2:127.0.0.1:{port}]', monmap],
            check=True, capture_output=True)
        self.run('ceph-mon', '--mkfs', '-i', 'a', '--monmap', monmap)
        self._daemon('ceph-mon', '-i', 'a')
        self.run('ceph', '--connect-timeout', str(int(_START_S)),
                 'mon', 'stat')
        name = str(uuid.uuid4())
        (self._directory / 'osd').mkdir()
        self.run('ceph', 'osd', 'new', name, '0')
        self.run('ceph-osd', '--mkfs', '-i', '0', '--osd-uuid', name)
        self._daemon('ceph-osd', '-i', '0')
        self.run('ceph', 'osd', 'pool', 'create', POOL, '8')
        self._wait_active()
        self.run('rbd', 'pool', 'init', POOL)

    def _daemon(self, program, *argv):
        with (self._directory / f'{program}.log').open('wb') as log:
            self._processes.append(subprocess.Popen(
                [program, '-c', self.conf, '--foreground', *argv],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self._directory, env={**os.environ, 'TZ': 'UTC'}))

    def _wait_active(self):
        deadline = time.monotonic() + _START_S
        while '1 up' not in self.run('ceph', 'osd', 'stat'):
            if time.monotonic() > deadline:
                raise TimeoutError('the OSD does not start, see '
                                   f'{self._directory}/ceph-osd.log')
            time.sleep(0.2)

    def stop(self):
        """End its daemons.  Idempotent."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()


def _free_port():
    with socket.socket() as one:
        one.bind(('127.0.0.1', 0))
        return one.getsockname()[1]
