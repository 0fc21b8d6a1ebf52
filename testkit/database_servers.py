# SPDX-License-Identifier: Apache-2.0
"""Private MariaDB and PostgreSQL servers, reached by a Unix socket only."""

import abc
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import time

_START_S = 60
_END_S = 20


class ServerFailed(Exception):
    """A server did not start; the message has the end of its log."""


class Server(abc.ABC):
    """A server with one empty database, in a directory of its own.

    :param directory: an empty directory that exists
    :raises ServerFailed: its programs are missing, or fail
    """

    #: account that it runs as, None for the present one
    account = None
    #: name of the socket
    socket = None

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self._log = self.directory / 'log'
        self._process = None
        if self.account and not os.getuid():
            # It has to reach what it owns.
            entry = pwd.getpwnam(self.account)
            os.chown(self.directory, entry.pw_uid, entry.pw_gid)
            for above in (self.directory, *self.directory.parents):
                if above.owner() == 'root' and above != pathlib.Path('/'):
                    above.chmod(above.stat().st_mode | 0o011)

    @property
    @abc.abstractmethod
    def url(self):
        """SQLAlchemy's URL of the database."""

    @abc.abstractmethod
    def _create(self):
        """Return the command that fills the data directory."""

    @abc.abstractmethod
    def _serve(self):
        """Return the command of the server."""

    def start(self):
        with self._log.open('ab') as log:
            options = {
                'stdin': subprocess.DEVNULL, 'stdout': log,
                'stderr': subprocess.STDOUT, 'cwd': self.directory,
                'user': None if os.getuid() else self.account}
            try:
                subprocess.run(self._create(), check=True,
                               timeout=_START_S, **options)
                self._process = subprocess.Popen(self._serve(), **options)
            except (OSError, subprocess.SubprocessError) as error:
                raise self._failed(str(error)) from error
        deadline = time.monotonic() + _START_S
        while not self._listens():
            if self._process.poll() is not None:
                raise self._failed('it ended with exit status %s'
                                   % self._process.returncode)
            if time.monotonic() > deadline:
                self.close()
                raise self._failed('it did not listen within %d s' % _START_S)
            time.sleep(0.05)

    def _listens(self):
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(self.directory / self.socket))
        except OSError:
            return False
        return True

    def _failed(self, what):
        return ServerFailed('%s in %s: %s; its log ends: %s' % (
            type(self).__name__, self.directory, what,
            self._log.read_text(errors='replace')[-2000:]))

    def close(self):
        """End it; its directory stays."""
        if self._process is None:
            return
        # PostgreSQL's fast shutdown; the same to MariaDB as SIGTERM.
        self._process.send_signal(self.end)
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class MariaDB(Server):
    socket = 'socket'
    end = signal.SIGTERM

    @property
    def url(self):
        return 'mysql+pymysql://root@localhost/test?unix_socket=%s' % (
            self.directory / self.socket)

    def _create(self):
        # With its database `test`.
        return ['mariadb-install-db', '--no-defaults', '--user=root',
                '--datadir=%s' % (self.directory / 'data'),
                '--auth-root-authentication-method=normal']

    def _serve(self):
        return ['mariadbd', '--no-defaults', '--user=root',
                '--datadir=%s' % (self.directory / 'data'),
                '--socket=%s' % (self.directory / self.socket),
                '--pid-file=%s' % (self.directory / 'pid'),
                '--skip-networking', '--innodb-flush-log-at-trx-commit=0',
                '--innodb-buffer-pool-size=32M', '--innodb-doublewrite=0',
                '--performance-schema=OFF']


class PostgreSQL(Server):
    account = 'postgres'
    socket = '.s.PGSQL.5432'
    end = signal.SIGINT

    @property
    def url(self):
        return 'postgresql+psycopg2://postgres@/postgres?host=%s' % (
            self.directory)

    @staticmethod
    def _program(name):
        # Debian keeps the programs of each version apart, not in PATH.
        found = sorted(pathlib.Path('/usr/lib/postgresql').glob(
            '*/bin/' + name), key=lambda path: float(path.parts[4]))
        return str(found[-1]) if found else shutil.which(name) or name

    def _create(self):
        return [self._program('initdb'), '--username=postgres',
                '--auth=trust', '--no-sync', '--encoding=UTF8',
                '--pgdata=%s' % (self.directory / 'data')]

    def _serve(self):
        return [self._program('postgres'), '-D',
                str(self.directory / 'data'), '-F',
                '-c', 'listen_addresses=', '-c', 'shared_buffers=16MB',
                '-c', 'unix_socket_directories=%s' % self.directory]
