# SPDX-License-Identifier: Apache-2.0
"""Options of tempest.conf."""

from oslo_config import cfg

SERVICE_OPTION = cfg.BoolOpt(
    'dedup_migrate', default=False,
    help='Whether compute hosts use the driver of nova-dedup-migrate.')

GROUP = cfg.OptGroup('dedup_migrate', title='Live migrations that leave out '
                                            'what storage holds')

OPTIONS = [
    cfg.StrOpt(
        'catalog_type', default='dedup-migrate',
        help='Type of the controller\'s service in the catalogue.'),
    cfg.StrOpt(
        'endpoint_type', default='publicURL',
        choices=['publicURL', 'adminURL', 'internalURL'],
        help='Which of its endpoints tests use.'),
    cfg.BoolOpt(
        'controller', default=False,
        help='Whether the cloud has the controller. Off: tests of its API, '
             'of reports, predictions and drains, are skipped.'),
    cfg.BoolOpt(
        'shared_volumes', default=False,
        help='Whether both hosts can read a volume, and record the I/O of '
             'their guests, so that pages which were read from it are not '
             'sent.'),
    cfg.IntOpt(
        'timeout', default=300, min=1,
        help='Seconds within which a drain or an estimate has to end, and '
             'a report to arrive at the controller.'),
    cfg.IntOpt(
        'file_size', default=16, min=1, max=4096,
        help='MiB of the file that a guest writes, and keeps in its page '
             'cache, before it migrates.'),
    cfg.IntOpt(
        'memory_size', default=8, min=1, max=4096,
        help='MiB of a guest\'s memory that no disk holds and that are '
             'compared before and after a migration.'),
    cfg.IntOpt(
        'anonymous_size', default=4, min=1, max=1024,
        help='MiB of the memory of a process in the guest that are compared '
             'likewise. The guest needs three times as much while they are '
             'made.'),
    cfg.StrOpt(
        'file_directory', default='/var/tmp',
        help='Directory of that file in the guest, on its disk.'),
    cfg.StrOpt(
        'memory_directory', default='/dev/shm',
        help='Directory of a tmpfs in the guest; FIFOs are made there, too.'),
    cfg.StrOpt(
        'host_without_agent', default='',
        help='Name of a compute host with the driver on which '
             'nova-dedup-migrate-agent does not run, for the test that '
             'live migrations to it are ordinary ones. Empty: the test is '
             'skipped.'),
]
