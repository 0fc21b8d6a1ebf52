# SPDX-License-Identifier: Apache-2.0
"""A MariaDB of its own, in a directory, for a measurement."""

import contextlib
import pathlib
import socket
import subprocess
import time

_USER = 'root'


@contextlib.contextmanager
def running(directory, buffer_pool='256M'):
    """Yield the SQLAlchemy URL of an empty database.

    :param directory: empty; holds the database
    :raises RuntimeError: MariaDB does not start
    """
    directory = pathlib.Path(directory)
    data, sock = directory / 'data', directory / 'socket'
    log = directory / 'mariadb.log'
    with log.open('wb') as out:
        subprocess.run(
            ['mariadb-install-db', '--no-defaults', '--user=' + _USER,
             '--datadir=%s' % data, '--skip-test-db',
             '--auth-root-authentication-method=normal'],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=True)
        process = subprocess.Popen(
            ['mariadbd', '--no-defaults', '--user=' + _USER,
             '--datadir=%s' % data, '--socket=%s' % sock,
             '--skip-networking', '--skip-name-resolve',
             '--innodb-flush-log-at-trx-commit=1',
             '--innodb-log-file-size=256M',
             '--innodb-buffer-pool-size=' + buffer_pool],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 60
        while not _answers(sock):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError('MariaDB does not start:\n'
                                   + log.read_text()[-2000:])
            time.sleep(0.2)
        subprocess.run(
            ['mariadb', '--no-defaults', '--socket=%s' % sock, '--user='
             + _USER, '--execute=CREATE DATABASE dedup_migrate '
             'CHARACTER SET utf8mb4'], check=True)
        yield ('mysql+pymysql://%s@localhost/dedup_migrate?unix_socket=%s'
               '&charset=utf8mb4' % (_USER, sock))
    finally:
        process.terminate()
        process.wait(60)


def _answers(path):
    with socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(str(path))
        except OSError:
            return False
    return True
