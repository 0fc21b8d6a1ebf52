# SPDX-License-Identifier: Apache-2.0
"""[DEFAULT] state_path, for those that are not Nova."""

from oslo_config import cfg

_STATE_PATH = cfg.StrOpt(
    'state_path',
    default='/var/lib/nova',
    help='The folder of the state of Nova, as in nova.conf.')


def register_opts(conf):
    """Make conf.state_path known, where Nova has not done it."""
    try:
        conf.register_opt(_STATE_PATH)
    except cfg.DuplicateOptError:
        # Nova's own, which has another default and help.
        return
