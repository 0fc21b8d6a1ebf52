# SPDX-License-Identifier: Apache-2.0
"""A controller beside an emulated OpenStack, for the checks of it."""

import contextlib
import pathlib
import threading

from keystoneauth1 import loading
from oslo_config import cfg

from nova_dedup_migrate.api import deploy
from nova_dedup_migrate.cmd import controller
from nova_dedup_migrate.cmd import serve
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import schema
from testkit import openstack

ADMIN = 'root:ops:admin,manager,member,reader'


def configuration(connection, url, **options):
    """Return a ConfigOpts.

    :param connection: URL of the database
    :param url: of the emulated OpenStack
    :param options: of [engine]
    """
    conf = cfg.ConfigOpts()
    controller.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('connection', connection, 'database')
    for name, value in (('auth_strategy', 'noauth2'), ('rate_limit', 0),
                        ('response_validation', 'error')):
        conf.set_override(name, value, 'api')
    for name, value in {'metrics_listen': '', **options}.items():
        conf.set_override(name, value, 'engine')
    group = 'openstack'
    conf.register_opts(loading.get_auth_plugin_conf_options('password'),
                       group)
    for name, value in (
            ('auth_type', 'password'), ('auth_url', url + '/v3'),
            ('username', 'dedup'), ('password', 'x'),
            ('project_name', 'service'), ('user_domain_id', 'default'),
            ('project_domain_id', 'default'),
            ('region_name', 'RegionOne')):
        conf.set_override(name, value, group)
    return conf


@contextlib.contextmanager
def api(conf, database):
    """Serve the API; yield its URL."""
    server = serve.make_server('127.0.0.1', 0,
                               deploy.deploy(conf, database))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield 'http://127.0.0.1:%d' % server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def sqlite(directory, **options):
    """Yield configuration, database and emulated OpenStack.

    :param directory: for the file of the database
    """
    emulated = openstack.OpenStack(options.pop('hosts', 3))
    emulated.start()
    conf = configuration(
        'sqlite:///%s' % (pathlib.Path(directory) / 'controller.sqlite'),
        emulated.url, **options)
    database = facade.Database(conf)
    try:
        schema.sync(database)
        yield conf, database, emulated
    finally:
        database.close()
        emulated.stop()
