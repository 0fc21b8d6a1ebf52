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
             'sample takes one second. Other instances are not sampled. '
             '0: only when a migration needs it.'),
]


def register_opts(conf):
    """Make the options known, besides those of dedup_migrate."""
    conf.register_group(dedup_migrate.GROUP)
    conf.register_opts(ALL_OPTS, group=dedup_migrate.GROUP)
