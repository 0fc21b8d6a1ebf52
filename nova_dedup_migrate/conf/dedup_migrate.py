# SPDX-License-Identifier: Apache-2.0
"""[dedup_migrate]: how live migrations leave out what storage holds."""

from oslo_config import cfg

from nova_dedup_migrate.planner import facts

GROUP = cfg.OptGroup(
    'dedup_migrate',
    title='Live migration without what storage already holds',
    help='Options of nova-compute with the compute_driver '
         'dedup_migrate.DedupMigrateLibvirtDriver, of the agent, '
         'nova-dedup-migrate-agent, and of the command nova-dedup-migrate.')

_STRATEGY_HELP = {
    'auto': 'whatever is predicted to be the fastest; an ordinary live '
            'migration where nothing is faster',
    'shared_nas': 'pages of disks that source and destination both open, '
                  'known from the I/O of the guest',
    'page_cache': 'also pages the guest says it caches, where it can be '
                  'asked; otherwise as shared_nas',
    'snapshot': 'disks rebuilt from backups. Not available yet: as '
                'shared_nas',
    'off': 'ordinary live migrations; guest I/O is not tracked',
}

_BASIC = [
    cfg.BoolOpt(
        'enabled',
        default=True,
        help='Whether this host takes part. If not, its instances migrate '
             'as with the stock driver and guest I/O is not tracked, '
             'whatever flavors and images ask for.'),
    cfg.StrOpt(
        'strategy',
        default='auto',
        choices=[(name, _STRATEGY_HELP[name]) for name in facts.STRATEGIES],
        mutable=True,
        help='What a live migration may leave out because the destination '
             'can read it. The flavor extra spec and the image property '
             'dedup_migrate:strategy take precedence, in this order.'),
    cfg.BoolOpt(
        'track_io',
        default=True,
        help='Whether QEMU records which bytes of its disks the memory of '
             'a guest holds. It takes 8 bytes for each guest page that saw '
             'I/O. Without it migrations know nothing that could be left '
             'out.'),
    cfg.FloatOpt(
        'min_gain',
        default=0.05,
        min=0.0,
        max=0.9,
        mutable=True,
        help='Share of the predicted time of an ordinary migration that '
             'has to be saved for anything else to be chosen by the '
             'strategy auto: 0.05 is five per cent. No strategy is ever '
             'chosen that is predicted to be slower.'),
    cfg.FloatOpt(
        'watch_interval',
        default=0.5,
        min=0.1,
        max=60.0,
        help='Seconds between two looks at a live migration. At each look '
             'its figures are kept for the report, and it is decided '
             'whether to go on as planned.'),
]

_AGENT = [
    cfg.FloatOpt(
        'rpc_timeout',
        default=10.0,
        min=1.0,
        max=120.0,
        mutable=True,
        help='Seconds to wait until the agent on the destination has '
             'looked at the disks of the instance. After that the '
             'migration is an ordinary one. An agent that is not there or '
             'hangs is found out in 2 seconds whatever this is.'),
    cfg.FloatOpt(
        'probe_time',
        default=0.5,
        min=0.0,
        max=10.0,
        help='Longest time in seconds for which the agent reads a disk, or '
             'the source sends to the destination, to find out how fast '
             'that is. 0 measures nothing: storage and link then count as '
             'fast as configured, or as an earlier migration has found.'),
    cfg.IntOpt(
        'probe_bytes',
        default=64 * 1024 * 1024,
        min=1024 * 1024,
        max=4 * 1024 * 1024 * 1024,
        help='Bytes after which such a measurement ends early.'),
    cfg.IntOpt(
        'probe_cache_time',
        default=600,
        min=0,
        max=86400,
        help='Seconds for which the result of a measurement is used again. '
             '0 measures before each migration.'),
    cfg.FloatOpt(
        'link_bandwidth',
        default=0.0,
        min=0.0,
        mutable=True,
        help='Megabytes (10^6 bytes) per second the network between the '
             'hosts carries, for predictions. It limits nothing. 0 means '
             'that live_migration_bandwidth of [libvirt] and measurements '
             'are all there is to go by.'),
]

_PAGE_CACHE = [
    cfg.ListOpt(
        'page_cache_transports',
        default=['port'],
        item_type=cfg.types.String(choices=['port', 'agent']),
        mutable=True,
        help='How guests are asked what they cache, in this order. port: a '
             'virtio-serial port, which instances have whose image has the '
             'property dedup_migrate:page_cache_port. agent: the command '
             'guest-exec of qemu-guest-agent, where it runs and allows '
             'that; it runs a program in guests that did not ask for it. '
             'Empty: guests are not asked.'),
    cfg.FloatOpt(
        'page_cache_time',
        default=5.0,
        min=0.5,
        max=300.0,
        mutable=True,
        help='Seconds after which a guest that has not said what it caches '
             'is not waited for any longer. The migration begins then.'),
    cfg.IntOpt(
        'page_cache_memory',
        default=64,
        min=4,
        max=65536,
        mutable=True,
        help='MiB of its own memory the lister in the guest may use for '
             'tables.'),
    cfg.IntOpt(
        'page_cache_extents',
        default=4 * 1024 * 1024,
        min=1024,
        max=16 * 1024 * 1024,
        mutable=True,
        help='Longest list that is taken, in extents. Each takes 16 bytes '
             'here and 24 bytes in QEMU while it is read.'),
    cfg.StrOpt(
        'page_cache_lister',
        default='/usr/sbin/page-cache-lister',
        mutable=True,
        help='Path of the lister in guests, for qemu-guest-agent.'),
]

_OPERATIONS = [
    # Not named state_path: the default would then refer to itself.
    cfg.StrOpt(
        'operations_path',
        default='$state_path/dedup_migrate/operations',
        help='Directory of the live migrations that left this host: what '
             'recovery needs of those under way, and the reports of all. It '
             'must outlive a restart of the host. $state_path is the option '
             'of [DEFAULT].'),
    cfg.IntOpt(
        'operations_kept',
        default=1000,
        min=1,
        max=100000,
        help='Live migrations that have ended whose reports are kept on '
             'this host; then the oldest one is removed.'),
    cfg.IntOpt(
        'recovery_timeout',
        default=1800,
        min=60,
        max=86400,
        mutable=True,
        help='Seconds for which nova-compute tries to find out where the '
             'guest of an interrupted live migration is. Then it sets the '
             'instance to ERROR, with the reason in its fault, and leaves '
             'its task state, so that the guest is not started twice.'),
]

ALL_OPTS = _BASIC + _AGENT + _PAGE_CACHE + _OPERATIONS


def register_opts(conf):
    """Make conf.dedup_migrate known.

    :param conf: oslo_config.cfg.ConfigOpts
    """
    conf.register_group(GROUP)
    conf.register_opts(ALL_OPTS, group=GROUP)
