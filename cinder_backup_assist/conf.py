# SPDX-License-Identifier: Apache-2.0
"""[backup_assist] of cinder.conf: options of cinder-backup-assist."""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'backup_assist',
    title='Blocks of volumes from their backups',
    help='Options of cinder-backup-assist and of the backup drivers of '
         'cinder_backup_assist.')

ALL_OPTS = [
    cfg.StrOpt(
        'transport_url',
        secret=True,
        help='Message bus on which compute hosts find this daemon. Default: '
             '[DEFAULT] transport_url. A virtual host of its own keeps '
             'compute hosts away from the queues of Cinder; [dedup_migrate] '
             'backup_transport_url of nova.conf has to be the same.'),
    cfg.HostAddressOpt(
        'listen_address',
        default='0.0.0.0',
        help='Address on which the daemon serves data.'),
    cfg.PortOpt(
        'port',
        default=8797,
        help='Port on which the daemon serves data.'),
    cfg.HostAddressOpt(
        'advertised_address',
        help='Address or name under which compute hosts reach the data '
             'port; the certificate has to name it. Default: my_ip.'),
    cfg.StrOpt(
        'certificate',
        help='File with the certificate of this daemon, in PEM. Required.'),
    cfg.StrOpt(
        'certificate_key',
        help='File with the key of the certificate, in PEM. Required.'),
    cfg.StrOpt(
        'ca_certificate',
        help='File with certificates of the authorities, in PEM, that sign '
             'the certificates of compute hosts. Required: each connection '
             'has to come from the host that has the ticket.'),
    cfg.IntOpt(
        'ticket_lifetime',
        default=60,
        min=1,
        max=3600,
        help='Seconds in which a compute host has to connect after it has '
             'opened a backup.'),
    cfg.IntOpt(
        'session_time',
        default=14400,
        min=60,
        max=7 * 86400,
        help='Seconds after which a connection is ended, whatever it does.'),
    cfg.IntOpt(
        'idle_time',
        default=60,
        min=5,
        max=3600,
        help='Seconds after which a connection is ended on which nothing '
             'moves.'),
    cfg.IntOpt(
        'connections',
        default=16,
        min=1,
        max=1000,
        help='Connections at a time. Each may use one processor. More '
             'requests to open a backup are refused; compute hosts then '
             'open it at another daemon.'),
    cfg.FloatOpt(
        'bandwidth',
        default=0.0,
        min=0.0,
        help='Megabytes (10^6 bytes) of blocks a second that this daemon '
             'sends at most, over all connections. 0: no limit.'),
    cfg.StrOpt(
        'work_directory',
        help='Directory for the maps of backups that are being read: 1.1 '
             'MiB for each GiB of a volume, in files without a name. '
             'Default: that of temporary files. If it is in memory, a large '
             'volume takes memory.'),
    cfg.StrOpt(
        'lease_directory',
        help='Directory in which the daemon notes which backups are being '
             'read. Backup drivers of cinder_backup_assist with the same '
             'directory wait for lease_time before they delete one. It has '
             'to be shared by the hosts that share the backup store, and '
             'must not be in it. Default: none, and deletion does not '
             'wait.'),
    cfg.IntOpt(
        'lease_time',
        default=300,
        min=0,
        max=3600,
        help='Seconds for which the deletion of a backup that is being '
             'read is held.'),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Make conf.backup_assist known."""
    conf.register_group(GROUP)
    conf.register_opts(ALL_OPTS, group=GROUP)


def list_opts() -> list[tuple]:
    """Return [(group, options)] for oslo-config-generator."""
    return [(GROUP, ALL_OPTS)]
