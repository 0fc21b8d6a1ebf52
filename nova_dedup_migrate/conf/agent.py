# SPDX-License-Identifier: Apache-2.0
"""[dedup_migrate]: options of nova-dedup-migrate-agent alone."""

from oslo_config import cfg

from nova_dedup_migrate.conf import dedup_migrate

ALL_OPTS = [
    cfg.BoolOpt(
        'report_to_controller',
        default=True,
        help='Whether the agent sends the reports of this host, and what it '
             'has sampled of its guests, to the engines of the controller. '
             'A controller that is away delays nothing; a cloud without one '
             'can set this to false.'),
    cfg.StrOpt(
        'metrics_listen',
        default='127.0.0.1:9110',
        help='Address and port at which Prometheus reads the metrics of the '
             'agent. Empty: nowhere.'),
    cfg.ListOpt(
        'image_directories',
        default=[],
        help='Directories below which the agent looks for the disks of '
             'instances, beside those of Nova: instances_path, and the '
             'mount points of [libvirt] nfs_mount_point_base, '
             'quobyte_mount_point_base, smbfs_mount_point_base and '
             'vzstorage_mount_point_base. It opens no other file, '
             'whatever it is asked.'),
    cfg.HostAddressOpt(
        'probe_address',
        help='Address on which the agent takes the bytes that measure the '
             'link to this host. Default: [libvirt] '
             'live_migration_inbound_addr, or my_ip where that is not set.'),
    cfg.PortOpt(
        'probe_port_min',
        default=49152,
        help='First port of those measurements. The default is the range '
             'of libvirt\'s migrations, which firewalls let through '
             'already; ports that are in use are passed over.'),
    cfg.PortOpt(
        'probe_port_max',
        default=49215,
        help='Last port of those measurements. The last one that is free '
             'is taken. This host measures the link to another one only on '
             'ports of this range, so it has to be the same on all hosts.'),
    cfg.ListOpt(
        'probe_networks',
        default=[],
        item_type=cfg.types.String(),
        help='Networks, as 192.0.2.0/24, that the migration addresses of '
             'all hosts are in. If set, the agent measures no link to an '
             'address outside, whatever the agent there names. Otherwise '
             'only loopback, link-local, multicast, reserved and '
             'unspecified addresses are refused.'),
    cfg.FloatOpt(
        'survey_interval',
        default=120.0,
        min=0.0,
        max=86400.0,
        help='Seconds between two samples of each instance of this host '
             'whose I/O is recorded, about: how fast it writes to memory '
             'and disks, and how much of its memory is in use. They are '
             'kept for its next migration, which then begins at once. A '
             'sample takes one second. As often, and apart from it, is '
             'measured how much memory each writes to in 1, 10 and 60 '
             'seconds, for reports. Other instances are not sampled. '
             '0: only when a migration needs it.'),
    cfg.StrOpt(
        'index_path',
        default='$state_path/dedup_index',
        help='Directory of the index of the blocks that this host has. It '
             'can be removed while the agent does not run; the index is '
             'then built again.'),
    cfg.FloatOpt(
        'index_interval',
        default=3600.0,
        min=0.0,
        help='Seconds between two sweeps in which the agent indexes '
             'images and disks that are new or have changed. 0: it '
             'indexes nothing.'),
    cfg.FloatOpt(
        'index_rate',
        default=50e6,
        min=1e6,
        help='Bytes a second that the index reads at most.'),
    cfg.FloatOpt(
        'index_max_load',
        default=1.0,
        min=0.0,
        help='Load average for each processor above which indexing '
             'waits. It also waits while a migration is under way.'),
    cfg.IntOpt(
        'index_max_entries',
        default=64 << 20,
        min=1024,
        max=1 << 32,
        help='Entries of the index; each takes 16 bytes and stands for '
             '32 KiB. The files that were indexed first are dropped if '
             'there would be more.'),
    cfg.FloatOpt(
        'public_images_lifetime',
        default=3600.0,
        min=0.0,
        help='Seconds for which the list of public images counts that the '
             'controller has sent. Blocks of public images may be used for '
             'instances of every project. The engine sends the list every '
             '[engine] public_images_interval seconds, so this should be '
             'several times that. 0: no image counts as public.'),
    cfg.StrOpt(
        'journals_path',
        default='$state_path/dedup_journals',
        help='Directory of the journals of disks that are being built. '
             'With them a disk is continued after a restart.'),
    cfg.IntOpt(
        'storage_reserved_bytes',
        default=10 << 30,
        min=0,
        help='Bytes that stay free in the file system of a disk that is '
             'built. With less nothing more is built, and the rest is '
             'mirrored by QEMU.'),
    cfg.StrOpt(
        'replicas_path',
        default='$state_path/dedup_replicas',
        help='Directory of replicas: disks of instances that are to '
             'migrate to this host later.'),
    cfg.IntOpt(
        'replicas_max_bytes',
        default=100 << 30,
        min=0,
        help='Bytes that all replicas of this host may take. 0: none are '
             'made.'),
    cfg.FloatOpt(
        'replicas_interval',
        default=600.0,
        min=0.0,
        help='Seconds between two refreshes of each replica of this host: '
             'what its instance has written since is read again at the '
             'source, at the rate of disk_read_rate and channel_rate there. '
             'One replica is refreshed at a time. 0: replicas are not '
             'refreshed, and QEMU does not go on recording writes.'),
    cfg.StrOpt(
        'storage_daemon',
        default='qemu-storage-daemon',
        help='qemu-storage-daemon, which writes the disks that are built; '
             'a path, or a name in PATH.'),
    cfg.HostAddressOpt(
        'channel_address',
        help='Address on which the agent serves blocks to other agents. '
             'Default: [libvirt] live_migration_inbound_addr, or my_ip '
             'where that is not set.'),
    cfg.PortOpt(
        'channel_port',
        default=49216,
        help='Port of that, TCP.'),
    cfg.FloatOpt(
        'channel_rate',
        default=0.0,
        min=0.0,
        help='Bytes a second that this host sends to all other agents '
             'together: blocks to neighbours, and manifests and blocks of '
             'disks that leave it. 0: no limit, as with [libvirt] '
             'live_migration_bandwidth.'),
    cfg.StrOpt(
        'channel_ca_file',
        default='/etc/pki/nova-dedup-migrate/ca-cert.pem',
        help='Certificate of the authority of all hosts, PEM. Without it '
             'no disks are built.'),
    cfg.StrOpt(
        'channel_cert_file',
        default='/etc/pki/nova-dedup-migrate/host-cert.pem',
        help='Certificate of this host, PEM, for servers and clients. Its '
             'subjectAltName has the name of the host, as in [DEFAULT] '
             'host, as a DNS name.'),
    cfg.StrOpt(
        'channel_key_file',
        default='/etc/pki/nova-dedup-migrate/host-key.pem',
        help='Key of that certificate, PEM, readable by the user of the '
             'agent alone.'),
]


def register_opts(conf):
    """Make the options known, besides those of dedup_migrate."""
    conf.register_group(dedup_migrate.GROUP)
    conf.register_opts(ALL_OPTS, group=dedup_migrate.GROUP)
