# SPDX-License-Identifier: Apache-2.0
"""What is built and with which tools; the hash of all of it."""

import dataclasses
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys

from buildtool import common
from buildtool.common import BuildError

#: Raise it when a change in this tool changes what is installed.
RECIPE = 1

#: What OpenStack's guests and volumes need, and nothing that would
#: only lengthen the build.
OPTIONS = (
    '--target-list=x86_64-softmmu', '--without-default-features',
    '--disable-install-blobs', '--disable-docs', '--enable-tools',
    # Backtraces with line numbers; all of -g costs a tenth of the time.
    '--extra-cflags=-g1',
    # Accelerators, and what a hypervisor should have.
    '--enable-kvm', '--enable-tcg', '--enable-seccomp', '--enable-cap-ng',
    '--enable-malloc-trim', '--enable-numa', '--enable-fdt=system',
    # Block drivers and formats.
    '--enable-linux-aio', '--enable-linux-io-uring', '--enable-rbd',
    '--enable-glusterfs', '--enable-libnfs', '--enable-libiscsi',
    '--enable-curl', '--enable-replication', '--enable-bochs',
    '--enable-vdi', '--enable-vpc', '--enable-vmdk',
    # Migration and networking.
    '--enable-gnutls', '--enable-zstd', '--enable-slirp',
    '--enable-vhost-user', '--enable-vhost-net', '--enable-vhost-kernel',
    # Devices.
    '--enable-vnc', '--enable-pixman', '--enable-tpm', '--enable-attr',
    '--enable-virtfs',
)

TARGETS = ('qemu-system-x86_64', 'qemu-img', 'qemu-io', 'qemu-nbd',
           'storage-daemon/qemu-storage-daemon')


@dataclasses.dataclass(frozen=True)
class Profile:
    """How much of QEMU is built.

    :ivar name: part of the names of trees and prefixes, '' for all of it
    :ivar options: of configure
    :ivar targets: of ninja
    :ivar devices: lines of the device configuration, none for the default
    :ivar trial: options of the machine that a new QEMU is tried with
    :ivar shared_tree: stock and patched are built in one tree, one after
        the other: the second compiles only what differs
    """

    name: str
    options: tuple
    targets: tuple
    trial: tuple
    devices: tuple = ()
    shared_tree: bool = False


FULL = Profile(
    name='', options=OPTIONS, targets=TARGETS,
    trial=('-vga', 'std', '-device', 'virtio-net-pci'))

#: What benchmarks.demo can start, with every one of its options, and
#: nothing else: somebody waits for it.
SMALL = Profile(
    name='small',
    options=(
        '--target-list=x86_64-softmmu', '--without-default-features',
        '--without-default-devices',
        '--with-devices-x86_64=nova-dedup-migrate',
        '--disable-install-blobs', '--disable-docs', '--enable-tools',
        '--disable-debug-info', '--enable-kvm', '--enable-tcg',
        # a quarter less to compute than with -O2, which it overrides
        '--enable-zstd', '--extra-cflags=-O1'),
    devices=(
        'CONFIG_I440FX=y', 'CONFIG_SERIAL_ISA=y', 'CONFIG_IDE_PIIX=y',
        'CONFIG_VIRTIO_PCI=y', 'CONFIG_VIRTIO_BLK=y',
        'CONFIG_VIRTIO_SCSI=y'),
    targets=('qemu-system-x86_64', 'qemu-img'),
    trial=('-device', 'virtio-scsi-pci'),
    shared_tree=True)

SANITIZERS = {
    'address': '--enable-asan',
    'undefined': '--enable-ubsan',
    'thread': '--enable-tsan',
}

#: What QEMU's configure script needs in the Python that it runs with.
PYTHON_PACKAGES = ('meson==1.5.0', 'pycotap==1.3.1', 'setuptools<81')


def options(sanitize=(), profile=FULL):
    """Return the configure options.

    :param sanitize: names from SANITIZERS
    """
    for name in sanitize:
        if name not in SANITIZERS:
            raise BuildError(
                f'there is no sanitizer {name}: choose from '
                + ', '.join(SANITIZERS))
    if 'thread' in sanitize and 'address' in sanitize:
        raise BuildError(
            'the sanitizers thread and address exclude each other')
    return [*profile.options, *(SANITIZERS[name] for name in sorted(sanitize))]


def device_configuration(profile):
    """Return the file that --with-devices names, as (path, text) pairs."""
    if not profile.devices:
        return ()
    return (('configs/devices/x86_64-softmmu/nova-dedup-migrate.mak',
             '\n'.join(profile.devices) + '\n'),)


def compiler():
    """Return the C compiler's command and its description."""
    name = os.environ.get('CC', 'cc')
    common.need_command(name, 'gcc')
    shown = subprocess.run(
        [name, '--version'], capture_output=True, text=True)
    return name, shown.stdout.partition('\n')[0]


def firmware_versions():
    """Return the versions of the packages the ROMs are copied from."""
    shown = subprocess.run(
        ['dpkg-query', '-W', '-f', '${Package}=${Version} ',
         'seabios', 'ipxe-qemu'], capture_output=True, text=True)
    return shown.stdout.strip()


def _hash(facts):
    return hashlib.sha256(
        json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def tree_key(source, sanitize=(), profile=FULL):
    """Hash what decides whether a build tree can be used again.

    Our own sources are left out: a change there is built incrementally.
    """
    return _hash([RECIPE, source.identity, options(sanitize, profile),
                  compiler(), platform.machine(), *profile.devices])


def prefix_key(source, sanitize=(), ours=None, profile=FULL):
    """Hash everything that decides what is installed.

    :param ours: tree.digest() for the patched QEMU, None for stock
    """
    return _hash([tree_key(source, sanitize, profile), profile.targets,
                  firmware_versions(), ours])


def python(cache):
    """Return a Python that QEMU's configure accepts; make it if needed."""
    version = f'{sys.version_info[0]}.{sys.version_info[1]}'
    place = cache.root / f'python-{_hash([PYTHON_PACKAGES, version])}'
    binary = place / 'bin' / 'python3'
    # The marker: an environment cannot be moved, so it is made in place.
    if (place / '.complete').exists() and binary.exists():
        return binary
    common.say('making the Python environment of the configure script')
    shutil.rmtree(place, ignore_errors=True)
    log = cache.root / 'log' / 'python.log'
    cache.run('making a Python environment (package python3-venv)',
              [sys.executable, '-m', 'venv', place], cache.root, log)
    cache.run('installing meson with pip',
              [binary, '-m', 'pip', 'install', '--no-input',
               '--disable-pip-version-check', *PYTHON_PACKAGES],
              cache.root, log)
    (place / '.complete').touch()
    return binary
