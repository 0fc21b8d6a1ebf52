# SPDX-License-Identifier: Apache-2.0
"""How a guest is to be migrated, and the QMP that says so."""

import dataclasses
import pathlib

from nova_dedup_migrate.hypervisor import errors

COMPRESSIONS = ('none', 'zlib', 'zstd')
TRANSPORTS = ('unix', 'tcp')

#: Stands for "no limit", in bytes per second.  QEMU divides and
#: multiplies the value, so its own maximum of 2^64-1 would overflow.
UNLIMITED = 1 << 44


@dataclasses.dataclass(frozen=True)
class TlsCredentials:
    """Credentials in the layout of QEMU's tls-creds-x509 / -psk.

    source_dir and destination_dir hold ca-cert.pem, client-cert.pem ...
    or keys.psk.  hostname is what the destination's certificate must be
    made out to.
    """

    source_dir: pathlib.Path
    destination_dir: pathlib.Path
    kind: str = 'x509'
    hostname: str | None = None
    verify_peer: bool = True

    def __post_init__(self):
        if self.kind not in ('x509', 'psk'):
            raise errors.OptionError(option='tls.kind', value=self.kind,
                                     reason='expected x509 or psk')

    def object(self, object_id, endpoint):
        """Arguments of object-add for one endpoint."""
        server = endpoint == 'server'
        return {'qom-type': 'tls-creds-' + self.kind, 'id': object_id,
                'dir': str(self.destination_dir if server
                           else self.source_dir),
                'endpoint': endpoint, 'verify-peer': self.verify_peer}


@dataclasses.dataclass(frozen=True)
class MigrationOptions:
    """Options of one migration.

    An implementation that has no way to do what an option asks for
    refuses it with NotOffered, before anything has happened.

    :param max_bandwidth: bytes per second, None for no limit
    :param max_postcopy_bandwidth: the same for the background transfer
        during post-copy
    :param downtime_limit_ms: longest pause of the guest to aim at
    :param multifd_channels: 0 for the plain stream
    :param multifd_compression: none, zlib or zstd
    :param xbzrle_cache_size: bytes, a power of two
    :param return_path: as libvirt does it; dedup needs it
    :param paused: leave the guest paused at the destination
    :param transport: unix (one machine only) or tcp, None for what the
        implementation does best
    :param port: TCP port of the destination, 0 for any free one
    :param capabilities: further QEMU capabilities by name
    :param parameters: further QEMU parameters by name
    """

    max_bandwidth: int | None = None
    max_postcopy_bandwidth: int | None = None
    downtime_limit_ms: int = 300
    multifd_channels: int = 0
    multifd_compression: str = 'none'
    xbzrle: bool = False
    xbzrle_cache_size: int = 64 << 20
    postcopy: bool = False
    postcopy_preempt: bool = False
    auto_converge: bool = False
    return_path: bool = True
    pause_before_switchover: bool = False
    paused: bool = False
    transport: str | None = None
    port: int = 0
    tls: TlsCredentials | None = None
    capabilities: dict[str, bool] = dataclasses.field(default_factory=dict)
    parameters: dict[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        for option in ('max_bandwidth', 'max_postcopy_bandwidth'):
            value = getattr(self, option)
            if value is not None:
                self._check(option, _is_int(value, 1, UNLIMITED),
                            'expected bytes per second, 1 to 2^44')
        self._check('downtime_limit_ms',
                    _is_int(self.downtime_limit_ms, 0, 2000000),
                    'expected milliseconds, 0 to 2000000')
        self._check('multifd_channels',
                    _is_int(self.multifd_channels, 0, 255),
                    'expected 0 to 255')
        self._check('multifd_compression',
                    self.multifd_compression in COMPRESSIONS,
                    'expected one of ' + ', '.join(COMPRESSIONS))
        self._check('multifd_compression',
                    self.multifd_compression == 'none'
                    or self.multifd_channels > 0,
                    'it needs multifd_channels')
        size = self.xbzrle_cache_size
        self._check('xbzrle_cache_size',
                    _is_int(size, 4096, 1 << 40) and size & (size - 1) == 0,
                    'expected a power of two, 4 KiB to 1 TiB')
        self._check('xbzrle', not (self.xbzrle and self.multifd_channels),
                    'multifd does not send deltas')
        self._check('postcopy_preempt',
                    self.postcopy or not self.postcopy_preempt,
                    'it needs postcopy')
        self._check('return_path', self.return_path or not self.postcopy,
                    'postcopy needs it')
        self._check('transport', self.transport in (None, *TRANSPORTS),
                    'expected one of ' + ', '.join(TRANSPORTS))
        self._check('port', _is_int(self.port, 0, 65535),
                    'expected 0 to 65535')

    def _check(self, option, good, reason):
        if not good:
            raise errors.OptionError(option=option,
                                     value=getattr(self, option),
                                     reason=reason)

    def qmp_capabilities(self):
        """Arguments of migrate-set-capabilities, the same on both sides.

        Every capability we know is named, on or off, because a QEMU
        keeps them from one attempt to the next.
        """
        states = {'return-path': self.return_path,
                  'multifd': self.multifd_channels > 0,
                  'xbzrle': self.xbzrle,
                  'postcopy-ram': self.postcopy,
                  'postcopy-preempt': self.postcopy_preempt,
                  'auto-converge': self.auto_converge,
                  'pause-before-switchover': self.pause_before_switchover,
                  'events': True}
        states.update(self.capabilities)
        return [{'capability': name, 'state': state}
                for name, state in states.items()]

    def qmp_parameters(self, tls_id=None):
        """Arguments of migrate-set-parameters, the same on both sides."""
        result = {
            'max-bandwidth': self.max_bandwidth or UNLIMITED,
            # 0 is QEMU's own word for unlimited here
            'max-postcopy-bandwidth': self.max_postcopy_bandwidth or 0,
            'downtime-limit': self.downtime_limit_ms,
            'multifd-compression': self.multifd_compression,
            'tls-creds': tls_id or ''}
        if self.tls is not None and self.tls.hostname:
            result['tls-hostname'] = self.tls.hostname
        if self.multifd_channels:
            result['multifd-channels'] = self.multifd_channels
        if self.xbzrle:
            result['xbzrle-cache-size'] = self.xbzrle_cache_size
        result.update(self.parameters)
        return result


def _is_int(value, low, high):
    return (isinstance(value, int) and not isinstance(value, bool)
            and low <= value <= high)
