# SPDX-License-Identifier: Apache-2.0
"""Horizon's settings in the lab, and for make dashboard-check."""

import os
from pathlib import Path

from openstack_dashboard.local import enabled as _enabled

_TOP = Path(__file__).resolve().parents[3]
_DIRECTORY = Path(os.environ['LAB_HORIZON_DIRECTORY'])

# As if they were copied into openstack_dashboard/local/enabled.
_enabled.__path__.append(str(_TOP / 'nova_dedup_migrate_dashboard/enabled'))

DEBUG = False
ALLOWED_HOSTS = [os.environ['LAB_HORIZON_ADDRESS']]
SECRET_KEY = os.environ['LAB_HORIZON_SECRET']
COMPRESS_OFFLINE = True
STATIC_ROOT = str(_DIRECTORY / 'static')
OPENSTACK_KEYSTONE_URL = os.environ['LAB_HORIZON_KEYSTONE'] + '/v3'
SESSION_ENGINE = 'django.contrib.sessions.backends.cache'
CACHES = {'default': {
    'BACKEND': 'django.core.cache.backends.locmem.LocMemCache'}}
TIME_ZONE = 'UTC'
# Django logs errors of requests only for DEBUG, else it mails them.
LOGGING = {
    'version': 1, 'disable_existing_loggers': False,
    'handlers': {'console': {'class': 'logging.StreamHandler'}},
    'loggers': {name: {'handlers': ['console'], 'level': 'WARNING'}
                for name in ('django.request', 'horizon',
                             'openstack_dashboard',
                             'nova_dedup_migrate_dashboard')}}
