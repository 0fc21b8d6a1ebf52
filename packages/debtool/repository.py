# SPDX-License-Identifier: Apache-2.0
"""A directory with packages that apt installs from: ``deb FILE: ./``."""

import gzip
import hashlib
import shutil
import subprocess


def make(directory, packages):
    """Make a flat repository of packages; the directory is emptied first.

    It is not signed: sources.list has to say ``[trusted=yes]``, or the
    Release file has to be signed by who offers it.

    :param packages: paths of .deb files
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for package in packages:
        shutil.copy(package, directory)
    index = subprocess.run(
        ['dpkg-scanpackages', '--multiversion', '.'], cwd=directory,
        check=True, capture_output=True).stdout
    files = {'Packages': index, 'Packages.gz': gzip.compress(index, mtime=0)}
    for name, data in files.items():
        (directory / name).write_bytes(data)
    lines = ['Origin: nova-dedup-migrate', 'Suite: ./', 'SHA256:']
    lines += [' %s %d %s' % (hashlib.sha256(data).hexdigest(), len(data),
                             name) for name, data in files.items()]
    (directory / 'Release').write_text('\n'.join(lines) + '\n')
