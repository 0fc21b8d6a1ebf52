# SPDX-License-Identifier: Apache-2.0
"""[upgrade_levels]: versions during an upgrade, as Nova's options there."""

from oslo_config import cfg

GROUP = cfg.OptGroup('upgrade_levels')

ALL_OPTS = [
    cfg.StrOpt(
        'dedup_migrate_agent',
        regex=r'\d+\.\d+',
        metavar='VERSION',
        help='Latest version of the RPC API of nova-dedup-migrate-agent '
             'that this host may use, for instance 1.0. Set it to the '
             'version of the oldest agent while the hosts of a cloud are '
             'upgraded one by one. Unset: the version of this release. '
             'Names of releases, which the other options of this group '
             'take, are not accepted.'),
]


def register_opts(conf):
    """Make conf.upgrade_levels.dedup_migrate_agent known."""
    conf.register_group(GROUP)
    conf.register_opts(ALL_OPTS, group=GROUP)
