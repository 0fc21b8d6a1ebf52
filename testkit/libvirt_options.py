# SPDX-License-Identifier: Apache-2.0
"""MigrationOptions as flags and parameters of virDomainMigrateToURI3."""

import urllib.parse

import libvirt

from nova_dedup_migrate.hypervisor import errors
from testkit import options as migration_options

_MIB = 1 << 20
#: Versions of libvirt as its API counts them.
_COMPRESSES_MULTIFD = 9_004_000


def mib_per_s(bytes_per_s):
    """libvirt's unit of bandwidth; it has no smaller one."""
    return -(-(bytes_per_s or migration_options.UNLIMITED) // _MIB)


def check(options, version):
    """Refuse what libvirt has no way to do.

    :param version: of the libvirtd, as getLibVersion() says
    :raises NotOffered:
    """
    def no(option, reason):
        raise errors.NotOffered(option=option,
                                value=getattr(options, option),
                                reason=reason)

    if options.transport == 'unix':
        no('transport', 'libvirt migrates between hosts')
    if options.pause_before_switchover:
        no('pause_before_switchover', 'libvirt keeps this stop for itself '
           'and goes on without asking')
    if not options.return_path:
        no('return_path', 'libvirt always uses it')
    if options.postcopy and options.paused:
        no('paused', 'libvirt does not leave a guest paused in post-copy')
    if options.tls is not None:
        no('tls', 'libvirt takes the credentials from its qemu.conf')
    if options.capabilities:
        no('capabilities', 'libvirt sets them all by itself')
    if options.parameters:
        no('parameters', 'libvirt sets them all by itself')
    if (options.multifd_compression != 'none'
            and version < _COMPRESSES_MULTIFD):
        no('multifd_compression', 'libvirt can do it from 9.4 on')


def flags(options, unsafe):
    """Return VIR_MIGRATE_ flags.

    :param unsafe: do not let libvirt judge whether the hosts see the
        same bytes of the disks
    """
    wanted = {
        libvirt.VIR_MIGRATE_PAUSED: options.paused,
        libvirt.VIR_MIGRATE_PARALLEL: options.multifd_channels,
        libvirt.VIR_MIGRATE_COMPRESSED:
            options.xbzrle or options.multifd_compression != 'none',
        libvirt.VIR_MIGRATE_AUTO_CONVERGE: options.auto_converge,
        libvirt.VIR_MIGRATE_POSTCOPY: options.postcopy,
        libvirt.VIR_MIGRATE_UNSAFE: unsafe}
    result = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER
    for flag, on in wanted.items():
        if on:
            result |= flag
    return result


def parameters(options, peer_uri):
    """Return VIR_MIGRATE_PARAM_ values."""
    result = {}
    if options.max_bandwidth is not None:
        result[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH] = mib_per_s(
            options.max_bandwidth)
    if options.max_postcopy_bandwidth is not None:
        result[libvirt.VIR_MIGRATE_PARAM_BANDWIDTH_POSTCOPY] = mib_per_s(
            options.max_postcopy_bandwidth)
    if options.multifd_channels:
        result[libvirt.VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS] = (
            options.multifd_channels)
    if options.xbzrle:
        result[libvirt.VIR_MIGRATE_PARAM_COMPRESSION] = 'xbzrle'
        result[libvirt.VIR_MIGRATE_PARAM_COMPRESSION_XBZRLE_CACHE] = (
            options.xbzrle_cache_size)
    elif options.multifd_compression != 'none':
        result[libvirt.VIR_MIGRATE_PARAM_COMPRESSION] = (
            options.multifd_compression)
    if options.port:
        result[libvirt.VIR_MIGRATE_PARAM_URI] = 'tcp://%s:%d' % (
            urllib.parse.urlsplit(peer_uri).hostname, options.port)
    return result
