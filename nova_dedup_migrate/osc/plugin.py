# SPDX-License-Identifier: Apache-2.0
"""The plugin of python-openstackclient: openstack dedup ..."""

from __future__ import annotations

import argparse
from typing import Any

from nova_dedup_migrate.osc import sdk

DEFAULT_API_VERSION = '1'
API_VERSION_OPTION = 'os_dedup_migrate_api_version'
API_NAME = 'dedup_migrate'
API_VERSIONS = {'1': 'nova_dedup_migrate.osc.sdk.Proxy'}


def make_client(instance: Any) -> Any:
    """Return the proxy of the connection that the client has."""
    connection = instance.sdk_connection
    connection.add_service(sdk.DESCRIPTION)
    return connection.dedup_migrate


def build_option_parser(parser: argparse.ArgumentParser
                        ) -> argparse.ArgumentParser:
    parser.add_argument(
        '--os-dedup-migrate-api-version', metavar='VERSION',
        default=DEFAULT_API_VERSION,
        help='major version of the API of nova-dedup-migrate (default: 1)')
    return parser
