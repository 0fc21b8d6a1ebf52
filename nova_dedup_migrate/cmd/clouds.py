# SPDX-License-Identifier: Apache-2.0
"""The cloud that a command is a client of."""

from __future__ import annotations

from typing import Any

from nova_dedup_migrate.cmd import errors


def connect() -> Any:
    """Return the connection that clouds.yaml or OS_* describe.

    :returns: openstack.connection.Connection
    :raises CommandFailed: openstacksdk is not installed
    """
    try:
        import openstack
    except ImportError as error:
        raise errors.CommandFailed(
            reason='openstacksdk is not installed') from error
    return openstack.connect()
