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
    cfg.StrOpt(
        'dedup_migrate_engine',
        regex=r'\d+\.\d+',
        metavar='VERSION',
        help='Latest version of the RPC API of nova-dedup-migrate-engine '
             'that the agent of this host may use. Set it to the version '
             'of the oldest engine during an upgrade. Unset: the version '
             'of this release.'),
]


def register_opts(conf):
    """Make our options of conf.upgrade_levels known."""
    conf.register_group(GROUP)
    conf.register_opts(ALL_OPTS, group=GROUP)
