# SPDX-License-Identifier: Apache-2.0
"""[api] and [engine]: the controller, which runs beside Nova's API."""

from keystoneauth1 import loading
from oslo_config import cfg

#: Where the controller is configured: nova-dedup-migrate.conf.
PROJECT = 'nova-dedup-migrate'
DATABASE = 'sqlite:////var/lib/nova-dedup-migrate/controller.sqlite'

API = cfg.OptGroup('api', title='REST API')
ENGINE = cfg.OptGroup('engine', title='Engine')
OPENSTACK = cfg.OptGroup(
    'openstack', title='The user the engine is in OpenStack',
    help='A user with a role that may migrate servers and disable compute '
         'services, as admin by default. Options as in [keystone_authtoken]'
         ' of other services.')

API_OPTS = [
    cfg.StrOpt(
        'auth_strategy',
        default='keystone',
        choices=[('keystone', 'requests carry a token of Keystone'),
                 ('noauth2', 'requests carry user:project:role,... as their '
                  'token and are believed; for tests, never on a network')],
        help='How the API finds out who sends a request.'),
    cfg.IntOpt(
        'rate_limit',
        default=600,
        min=0,
        help='Requests that one user may send to one API process in a '
             'minute; more are refused with status 429. 0: no limit.'),
    cfg.IntOpt(
        'max_waiting_estimates',
        default=50,
        min=1,
        max=10000,
        help='Estimates of one project that may wait for an engine.'),
    cfg.IntOpt(
        'estimate_lifetime',
        default=3600,
        min=60,
        max=86400,
        help='Seconds after which an estimate is forgotten.'),
    cfg.StrOpt(
        'response_validation',
        default='warn',
        choices=[('warn', 'log a warning'),
                 ('error', 'answer with status 500'),
                 ('ignore', 'do not compare them')],
        help='What happens if a response is not as the OpenAPI document '
             'describes it. It is a bug, please report it.'),
]

ENGINE_OPTS = [
    cfg.FloatOpt(
        'interval',
        default=2.0,
        min=0.1,
        max=60.0,
        help='Seconds between two steps of a drain.'),
    cfg.IntOpt(
        'workers',
        default=8,
        min=1,
        max=64,
        help='Drains and estimates on which this engine works at a time.'),
    cfg.FloatOpt(
        'lease_time',
        default=60.0,
        min=1.0,
        max=600.0,
        help='Seconds after which another engine continues the work of one '
             'that does not answer. An engine renews its leases four times '
             'in this time. All engines need the same value.'),
    cfg.FloatOpt(
        'submit_grace',
        default=60.0,
        min=0.0,
        max=3600.0,
        help='Seconds for which an engine that takes over a drain waits '
             'for a sign of a request that may have been sent to Nova, '
             'before it is considered as never sent.'),
    cfg.FloatOpt(
        'recheck_interval',
        default=60.0,
        min=0.5,
        max=3600.0,
        help='Seconds after which servers that cannot move are checked '
             'again, and whether an emptied host is still safe to power '
             'off.'),
    cfg.FloatOpt(
        'retry_delay',
        default=30.0,
        min=0.0,
        max=3600.0,
        help='Seconds before a failed live migration is tried again; '
             'doubled each time.'),
    cfg.IntOpt(
        'max_tries',
        default=3,
        min=1,
        max=20,
        help='Live migrations of a server in one drain.'),
    cfg.IntOpt(
        'max_outbound',
        default=1,
        min=1,
        max=100,
        help='Live migrations that leave a host at a time, unless the host '
             'or the drain has its own limit. Never more than '
             'max_concurrent_live_migrations of its nova-compute.'),
    cfg.FloatOpt(
        'link_rate',
        default=125.0,
        min=0.0,
        help='Megabytes (10^6 bytes) per second that the link of a host '
             'carries, for predictions, unless the agent has measured it.'),
    cfg.FloatOpt(
        'agent_timeout',
        default=180.0,
        min=5.0,
        max=3600.0,
        help='Seconds without a report after which the agent of a host '
             'counts as down.'),
    cfg.FloatOpt(
        'public_images_interval',
        default=300.0,
        min=0.0,
        max=86400.0,
        help='Seconds after which one engine lists the public images of '
             'Glance again and sends the list to all agents, which use '
             'blocks of these images for instances of every project. An '
             'image that is not public any more is private on a host when '
             'the next list arrives there, and at the latest after '
             'public_images_lifetime of its agent. 0: no list is sent.'),
    cfg.IntOpt(
        'report_days',
        default=30,
        min=1,
        max=3650,
        help='Days for which reports are kept.'),
    cfg.IntOpt(
        'summary_days',
        default=400,
        min=1,
        max=3650,
        help='Days for which migrations and drains are kept.'),
    cfg.StrOpt(
        'metrics_listen',
        default='127.0.0.1:9109',
        help='Address and port at which Prometheus reads the metrics of '
             'this engine. Empty: nowhere.'),
]


def register_opts(conf):
    """Make the options of the controller known."""
    conf.register_group(API)
    conf.register_opts(API_OPTS, group=API)
    conf.register_group(ENGINE)
    conf.register_opts(ENGINE_OPTS, group=ENGINE)
    conf.register_group(OPENSTACK)
    loading.register_auth_conf_options(conf, OPENSTACK.name)
    loading.register_session_conf_options(conf, OPENSTACK.name)
    loading.register_adapter_conf_options(conf, OPENSTACK.name,
                                          include_deprecated=False)


def list_opts():
    """Return [(group, options)] for oslo-config-generator."""
    return [(API, API_OPTS), (ENGINE, ENGINE_OPTS),
            (OPENSTACK, loading.get_auth_common_conf_options()
             + loading.get_auth_plugin_conf_options('password')
             + loading.get_session_conf_options()
             + loading.get_adapter_conf_options(include_deprecated=False))]
