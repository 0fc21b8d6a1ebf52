# SPDX-License-Identifier: Apache-2.0
"""[dedup_migrate]: how live migrations leave pages out."""

from oslo_config import cfg

from nova_dedup_migrate.planner import facts

GROUP = cfg.OptGroup(
    'dedup_migrate',
    title='Live migration without what storage already holds',
    help='Options of nova-compute with the compute_driver '
         'dedup_migrate.DedupMigrateLibvirtDriver, of the agent, '
         'nova-dedup-migrate-agent, and of the command nova-dedup-migrate.')

_STRATEGY_HELP = {
    'auto': 'the strategy that is predicted to be the fastest; an ordinary '
            'live migration if none saves min_gain of its time',
    'shared_nas': 'pages of disks that source and destination both open, '
                  'known from the I/O of the guest',
    'page_cache': 'also pages that the guest lists as its page cache, if '
                  'it can; otherwise as shared_nas',
    'compress': 'none; all pages are sent, compressed',
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
        help='Which pages a live migration may leave out because the '
             'destination can read them. The flavor extra spec and the image '
             'property dedup_migrate:strategy take precedence, in this '
             'order.'),
    cfg.StrOpt(
        'compression',
        default='auto',
        choices=[('auto', 'compressed if that is predicted to save time, '
                          'as memory usually is over a link of up to '
                          '10 Gbit/s'),
                 ('zstd', 'compressed unless that is predicted to be '
                          'slower'),
                 ('off', 'sent as they are')],
        mutable=True,
        help='Whether pages that go through the link are compressed. QEMU '
             'compresses them in threads of its own, one for each idle '
             'processor of the source and 4 at most, and only while that '
             'is faster than the link. The flavor extra spec and the image '
             'property dedup_migrate:compression take precedence, in this '
             'order. The strategy off also switches compression off.'),
    cfg.BoolOpt(
        'track_io',
        default=True,
        help='Whether QEMU records which bytes of its disks the memory of '
             'a guest holds. It takes 8 bytes for each guest page that saw '
             'I/O. Without it only pages that the guest lists as its page '
             'cache can be left out.'),
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
        'fetch_share',
        default=0.9,
        min=0.05,
        max=1.0,
        mutable=True,
        help='Share of the rate at which the destination was found to read '
             'the disks of an instance that it may take to fetch pages. '
             'Reads of fetched pages are not guest I/O: no quota of the '
             'flavor holds for them. Without a measured rate there is no '
             'limit.'),
    cfg.IntOpt(
        'fetch_rate',
        default=0,
        min=0,
        mutable=True,
        help='MiB per second that a destination reads to fetch pages, at '
             'most, for each instance that arrives; 0 means fetch_share of '
             'the measured rate.'),
    cfg.IntOpt(
        'fetch_iops',
        default=0,
        min=0,
        max=1000000,
        mutable=True,
        help='Reads per second that a destination begins to fetch pages, at '
             'most, for each instance that arrives; 0 means no limit. A '
             'read is of 1 MiB at most.'),
    cfg.BoolOpt(
        'fetch_in_postcopy',
        default=False,
        mutable=True,
        help='Whether a destination goes on fetching pages from storage '
             'while post-copy runs. If not, the source sends all of them '
             'when post-copy begins. It has no effect without '
             '[libvirt] live_migration_permit_post_copy.'),
    cfg.BoolOpt(
        'defer_redirtied_pages',
        default=False,
        mutable=True,
        help='Whether a page that the guest has written to again, when its '
             'turn comes, waits for the next round of the live migration '
             'instead of being sent in this one, too. It saves bytes and '
             'time with guests that write to the same memory again and '
             'again, and is left off for a round after one in which it '
             'saved nothing. The destination need not know of it. It has no '
             'effect on ordinary migrations.'),
    cfg.BoolOpt(
        'adapt_downtime_limit',
        default=True,
        mutable=True,
        help='Whether the downtime limit of a live migration may be raised '
             "before Nova's next step. A busy guest writes to the same "
             'memory again and again; if sending it takes a little longer '
             'than the limit, QEMU sends it over and over until Nova '
             'raises the limit, minutes later. With this option the limit '
             'is raised as soon as rounds show that, by no more than '
             'max_extra_downtime. It applies to ordinary migrations, too, '
             'except with the strategy off.'),
    cfg.IntOpt(
        'max_extra_downtime',
        default=50,
        min=0,
        max=100000,
        mutable=True,
        help='Milliseconds by which the downtime of a live migration may '
             "exceed that of Nova's own. A migration that leaves pages out "
             'is not chosen if it is predicted to stop the guest for longer '
             'than an ordinary one and this together. adapt_downtime_limit '
             "exceeds Nova's downtime limit of the moment by no more than "
             'this, and never live_migration_downtime of [libvirt]. A '
             'larger value ends migrations of busy guests sooner.'),
    cfg.StrOpt(
        'pacing',
        default='fixed',
        choices=[('fixed', 'live_migration_bandwidth of [libvirt] in all '
                           'rounds'),
                 ('adaptive', 'pacing_minimum in the first round; in each '
                              'further one 50 Mbit/s more than the guest '
                              'wrote to in the round before; '
                              'pacing_maximum when that is not enough')],
        mutable=True,
        help='The rate at which live migrations send memory. With adaptive '
             'a migration leaves most of the network to others and takes '
             'longer; times are predicted for pacing_maximum.'),
    cfg.IntOpt(
        'pacing_minimum',
        default=100,
        min=1,
        max=1000000,
        mutable=True,
        help='Mbit/s (10^6 bits) of the first round with adaptive pacing.'),
    cfg.IntOpt(
        'pacing_maximum',
        default=1000,
        min=1,
        max=1000000,
        mutable=True,
        help='Mbit/s that adaptive pacing may rise to. '
             'live_migration_bandwidth of [libvirt] is kept to as well.'),
    cfg.FloatOpt(
        'watch_interval',
        default=0.5,
        min=0.1,
        max=60.0,
        help='Seconds between two readings of the progress of a live '
             'migration. Each is kept for the report and used to decide '
             'whether the plan still holds.'),
]

_AGENT = [
    cfg.FloatOpt(
        'survey_max_age',
        default=300.0,
        min=0.0,
        max=86400.0,
        mutable=True,
        help='Seconds after which the figures of a guest that the agent has '
             'taken are too old to plan a live migration with. The agent '
             'then takes new ones, which delays the migration by a second '
             'or so. 0 takes new ones for each migration. Figures of a '
             'guest that wrote more than half of what the link carries are '
             'too old after 5 seconds.'),
    cfg.FloatOpt(
        'rpc_timeout',
        default=10.0,
        min=1.0,
        max=120.0,
        mutable=True,
        help='Seconds to wait for the agent on the destination, which '
             'checks that it can read the disks of the instance. After that '
             'the migration is an ordinary one. An agent that does not run '
             'or hangs is detected in 2 seconds, whatever this value.'),
    cfg.FloatOpt(
        'probe_time',
        default=0.5,
        min=0.0,
        max=10.0,
        help='Longest time in seconds for which the agent reads a disk, or '
             'the source sends to the destination, to measure the rate. To '
             'a host far away it sends for 24 round trips at least. 0 '
             'measures nothing: storage and link then count with the rate '
             'that is configured, or that an earlier migration had.'),
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
             'hosts carries, for predictions. It limits nothing. With 0 '
             'only live_migration_bandwidth of [libvirt] and measurements '
             'count.'),
]

_PAGE_CACHE = [
    cfg.ListOpt(
        'page_cache_transports',
        default=['port'],
        item_type=cfg.types.String(choices=['port', 'agent']),
        mutable=True,
        help='How guests are asked for a list of their page cache, in this '
             'order. port: a virtio-serial port, for instances whose image '
             'has the property dedup_migrate:page_cache_port. agent: the '
             'command guest-exec of qemu-guest-agent, if that runs and '
             'permits it; it runs a program in guests that did not ask for '
             'it. Empty: guests are not asked.'),
    cfg.FloatOpt(
        'page_cache_time',
        default=5.0,
        min=0.5,
        max=300.0,
        mutable=True,
        help='Seconds to wait for the list of a guest, and half a second '
             'more for each GB of its memory that is in use, 300 in all at '
             'most. Then the migration begins without it.'),
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
        help='Longest list that is accepted, in extents. Each takes 16 '
             'bytes in nova-compute and 24 bytes in QEMU while it is read.'),
    cfg.StrOpt(
        'page_cache_lister',
        default='/usr/sbin/page-cache-lister',
        mutable=True,
        help='Path of the lister in guests, for qemu-guest-agent.'),
]

_CONTENT_INDEX = [
    cfg.StrOpt(
        'content_index',
        default='off',
        choices=[
            ('off', 'disks are not read'),
            ('auto', 'if QEMU has recorded little of the guest, the guest '
                     'has listed little, and it may save time'),
            ('on', 'before each live migration')],
        mutable=True,
        help='Whether the disks of an instance are read on the source before '
             'its live migration, to find which pages of its memory they '
             'hold. It needs no help of the guest. The disks must bypass '
             'the page cache of the host (cache mode none), and the strategy '
             'of the instance has to be auto or page_cache. The property '
             'dedup_migrate:content_index of a flavor or image takes '
             'precedence.'),
    cfg.FloatOpt(
        'content_index_time',
        default=60.0,
        min=1.0,
        max=3600.0,
        mutable=True,
        help='Seconds that a live migration waits for it. Then the '
             'migration begins with what was found; while disks are copied, '
             'the search goes on.'),
    cfg.IntOpt(
        'content_index_rate',
        default=200,
        min=0,
        mutable=True,
        help='MiB a second that it reads of disks at most. The I/O limits '
             'of the instance do not apply. 0: no limit.'),
    cfg.IntOpt(
        'content_index_memory',
        default=512,
        min=1,
        mutable=True,
        help='MiB of memory it may take in QEMU. 4 MiB for each GiB of the '
             'memory of an instance are needed at most.'),
]

_DISKS = [
    cfg.StrOpt(
        'disks',
        default='off',
        choices=[
            ('auto', 'block migrations are prepared if that is predicted to '
                     'save min_gain of the time of copying the disks'),
            ('always', 'block migrations are prepared whatever is '
                       'predicted, and for as long as disk_time'),
            ('off', 'disks are copied as by Nova')],
        mutable=True,
        help='Whether the destination of a block migration builds the '
             'disks, before they are mirrored, from blocks that are near '
             'to it. What it does not build is copied by QEMU as always. Both '
             'hosts need certificates, see channel_ca_file of the agent. '
             'Instances with the strategy off are copied as by Nova.'),
    cfg.ListOpt(
        'disk_neighbours',
        default=[],
        mutable=True,
        help='Hosts whose agents are called for blocks, 8 at most: the '
             'names of compute hosts, near to the destination rather than '
             'to the source. Source and destination are left out.'),
    cfg.BoolOpt(
        'disk_image_store',
        default=True,
        mutable=True,
        help='Whether the destination also reads blocks of the root disk '
             'from the image store: raw images that are public or of the '
             "instance's project, namely the image of the instance and its "
             'snapshots and backups. For that it gets the token of the user '
             'who migrates. [glance] cafile and insecure hold for it, too.'),
    cfg.FloatOpt(
        'disk_time',
        default=3600.0,
        min=1.0,
        max=86400.0,
        mutable=True,
        help='Seconds after which nothing more of the disks of an instance '
             'is built. What is not built by then is copied by QEMU. If disks '
             'is auto, building a disk also ends as soon as it is slower than '
             'copying, by a tenth of the time of copying and 8 seconds.'),
    cfg.FloatOpt(
        'disk_read_rate',
        default=0.0,
        min=0.0,
        help='Bytes a second that the agent of the source reads of a disk '
             'at most. It reads less if the requests of the guest take '
             'longer than before. 0: no limit.'),
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

_BACKUPS = [
    cfg.StrOpt(
        'backup_transport_url',
        secret=True,
        help='Message bus of the daemons cinder-backup-assist, as '
             'transport_url. Default: transport_url. A virtual host of its '
             'own keeps compute hosts away from the queues of Cinder; see '
             '[backup_assist] transport_url of cinder.conf.'),
    cfg.StrOpt(
        'backup_certificate',
        help='File with the certificate of this host, in PEM, for '
             'connections to cinder-backup-assist. Its subject alternative '
             'name or common name has to be the host of nova-compute. '
             'Without it backups are not read.'),
    cfg.StrOpt(
        'backup_certificate_key',
        help='File with the key of backup_certificate, in PEM.'),
    cfg.StrOpt(
        'backup_ca_certificate',
        help='File with certificates of the authorities, in PEM, that sign '
             'the certificates of cinder-backup-assist.'),
    cfg.StrOpt(
        'volumes_path',
        default='$state_path/dedup_migrate/volumes',
        help='Directory of what is recorded about volumes of the instances '
             'of this host, and of swaps of volumes that are to be settled '
             'if nova-compute ends meanwhile. $state_path is the option of '
             '[DEFAULT].'),
    cfg.IntOpt(
        'volume_watch_interval',
        default=300,
        min=0,
        max=86400,
        help='Seconds between two checks that QEMU records the writes to '
             'each volume in use, and which of them are to be read. 0: '
             'writes are not recorded, and nothing is read. Without '
             'backup_certificate neither is done.'),
    cfg.IntOpt(
        'volume_fill_time',
        default=14400,
        min=1,
        max=604800,
        mutable=True,
        help='Seconds for filling a new volume from a backup. What is not '
             'filled by then is copied from the old volume.'),
    cfg.IntOpt(
        'volume_fingerprint_rate',
        default=10,
        min=0,
        max=100000,
        mutable=True,
        help='MiB/s, for all volumes of this host together, with which they '
             'are read at most to know what a backup has of them; less if '
             'the requests of the guest take longer. A volume that moves '
             'to another backend is filled from a backup as far as it has '
             'been read. 0: volumes are not read, and none is filled from a '
             'backup.'),
]

ALL_OPTS = (_BASIC + _AGENT + _PAGE_CACHE + _CONTENT_INDEX + _DISKS
            + _OPERATIONS + _BACKUPS)


def register_opts(conf):
    """Make conf.dedup_migrate known.

    :param conf: oslo_config.cfg.ConfigOpts
    """
    conf.register_group(GROUP)
    conf.register_opts(ALL_OPTS, group=GROUP)
