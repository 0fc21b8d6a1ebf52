# SPDX-License-Identifier: Apache-2.0
"""Stock multifd with zstd, the strongest that stock QEMU has, in the lab.

Nova sets the number of connections for all instances of a host.  libvirt
before 9.4 cannot compress them, so QEMU gets that on its command line, which
has no effect on migrations without multifd.
"""

import pathlib
import shutil

from lab import topology
from lab.services import libvirtd
from lab.services import nova

NAME = 'stock multifd + zstd'
CONNECTIONS = 2
#: QEMU's own default as well.
LEVEL = 1
_EMULATOR = 'qemu-system-x86_64'
_DIRECTORY = libvirtd.EMULATORS + '-zstd'
_SCRIPT = '''\
#!/bin/sh
exec %s -global migration.multifd-compression=zstd \\
    -global migration.multifd-zstd-level=%d "$@"
'''
_PAGE = 4096


def install(cloud) -> None:
    """Give guests that are started from now on a QEMU that can do it."""
    for host in cloud.computes:
        programs = topology.libvirtd(cloud, host.name).programs
        ours = host.directory / _DIRECTORY.lstrip('/')
        shutil.rmtree(ours, ignore_errors=True)
        ours.mkdir()
        for program in programs.iterdir():
            if program.name != _EMULATOR:
                (ours / program.name).symlink_to(program)
        emulator = ours / _EMULATOR
        emulator.write_text(_SCRIPT % (programs / _EMULATOR, LEVEL))
        emulator.chmod(0o755)
        _link(host, _DIRECTORY)


def remove(cloud) -> None:
    """Undo install; guests that run stay as they are."""
    for host in cloud.computes:
        _link(host, topology.libvirtd(cloud, host.name).programs)


def _link(host, target: str | pathlib.Path) -> None:
    link = host.directory / libvirtd.EMULATORS.lstrip('/')
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def use(cloud, connections: int) -> None:
    """Have Nova migrate all instances with so many connections; 0: without.

    :raises LabError: nova-compute does not start again
    """
    nova.restart_computes(cloud, connections=connections)


def wrong(kept: dict) -> str:
    """Return why a run was none of the rival, '' if it was."""
    sent = kept['pages'].get('peer', 0) * _PAGE
    memory = kept['memory_bytes']
    if not memory or not sent:
        return 'nothing is known of what was sent'
    # without compression a page takes its own size and a header
    return '' if memory < sent else 'the pages were not compressed'
