# SPDX-License-Identifier: Apache-2.0
"""Options of Nova that the agent reads from the nova.conf of its host.

Help and defaults are Nova's matter; the generated sample has none of
these.  They are for processes in which Nova is not loaded.
"""

import socket

from oslo_config import cfg
from oslo_utils import netutils

from nova_dedup_migrate.conf import paths

_HOST = [
    cfg.StrOpt('host', default=socket.gethostname(),
               sample_default='<current_hostname>',
               help='Name of this host, as Nova names it.'),
    cfg.StrOpt('my_ip', default=netutils.get_my_ipv4(),
               sample_default='<host_ipv4>',
               help='Address of this host.'),
    cfg.IntOpt('max_concurrent_live_migrations', default=1, min=0,
               help='Live migrations that leave this host at a time.'),
    cfg.StrOpt('instances_path', default='$state_path/instances',
               help='Where the disks of instances are.'),
]

_LIBVIRT = [
    cfg.StrOpt('connection_uri', default='',
               help='The libvirt to use, default qemu:///system.'),
    cfg.StrOpt('live_migration_inbound_addr',
               help='Address that incoming migrations use.'),
    cfg.IntOpt('live_migration_downtime', default=500, min=100,
               help='Longest downtime of a live migration in ms.'),
    cfg.IntOpt('live_migration_downtime_steps', default=10, min=3,
               help='Steps in which Nova raises the limit up to it.'),
    cfg.IntOpt('live_migration_downtime_delay', default=75, min=3,
               help='Seconds for each GiB between two of them.'),
    cfg.IntOpt('live_migration_bandwidth', default=0,
               help='MiB/s of a live migration, 0 for no limit.'),
    cfg.BoolOpt('live_migration_permit_post_copy', default=False,
                help='Whether Nova may switch to post-copy.'),
    cfg.BoolOpt('live_migration_permit_auto_converge', default=False,
                help='Whether QEMU may slow guests down.'),
    cfg.IntOpt('live_migration_completion_timeout', default=800, min=0,
               help='Seconds of a live migration for each GiB.'),
    cfg.StrOpt('live_migration_timeout_action', default='abort',
               help='What Nova does then: abort or force_complete.'),
    cfg.StrOpt('nfs_mount_point_base', default='$state_path/mnt',
               help='Where NFS volumes are mounted.'),
    cfg.StrOpt('quobyte_mount_point_base', default='$state_path/mnt',
               help='Where Quobyte volumes are mounted.'),
    cfg.StrOpt('smbfs_mount_point_base', default='$state_path/mnt',
               help='Where SMB volumes are mounted.'),
    cfg.StrOpt('vzstorage_mount_point_base', default='$state_path/mnt',
               help='Where Virtuozzo volumes are mounted.'),
    cfg.StrOpt('images_rbd_ceph_conf', default='',
               help='Path of ceph.conf.'),
    cfg.StrOpt('rbd_user', help='Name of the Ceph client.'),
]

_IMAGE_CACHE = [
    cfg.StrOpt('subdirectory_name', default='_base',
               help='Directory of cached images, in instances_path.'),
]

_GLANCE = [
    cfg.StrOpt('cafile',
               help='Certificates of authorities that sign that of Glance.'),
    cfg.StrOpt('certfile', help='Certificate shown to Glance.'),
    cfg.StrOpt('keyfile', help='Key of that certificate.'),
    cfg.BoolOpt('insecure', default=False,
                help='Whether any certificate of Glance is accepted.'),
]


def register_opts(conf):
    """Make what of these Nova has not registered known."""
    paths.register_opts(conf)
    for group, options in ((None, _HOST), ('libvirt', _LIBVIRT),
                           ('image_cache', _IMAGE_CACHE),
                           ('glance', _GLANCE)):
        for option in options:
            try:
                conf.register_opt(option, group=group)
            except cfg.DuplicateOptError:
                # Nova's own, with its own default and help
                continue


def volume_directories(conf):
    """Return the directories in which Nova mounts volumes."""
    return tuple(dict.fromkeys(filter(None, (
        conf.libvirt[base + '_mount_point_base']
        for base in ('nfs', 'quobyte', 'smbfs', 'vzstorage')))))
