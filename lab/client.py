# SPDX-License-Identifier: Apache-2.0
"""The lab's cloud as a user sees it, through openstacksdk."""

import threading

import keystoneauth1.exceptions
import openstack

from lab.cloud import REGION

#: What calls raise that do not succeed.
ERRORS = (openstack.exceptions.SDKException,
          keystoneauth1.exceptions.ClientException)

_local = threading.local()


def connect(cloud):
    """Return a connection as admin; one a thread.

    :returns: openstack.connection.Connection
    """
    # A lab that is made again has the same address and other passwords.
    wanted = cloud.identity, cloud.settings.password
    if getattr(_local, 'cloud', None) != wanted:
        _local.connection = new_connection(cloud)
        _local.cloud = wanted
    return _local.connection


def new_connection(cloud):
    """Return a connection of one's own.

    A connection keeps the catalog of endpoints that it saw first.
    """
    return openstack.connect(
        load_yaml_config=False, load_envvars=False,
        auth_url=cloud.url('identity'), username='admin',
        password=cloud.settings.password, project_name='admin',
        user_domain_name='Default', project_domain_name='Default',
        region_name=REGION, compute_default_microversion='2.95',
        app_name='nova-dedup-migrate-lab')
