# SPDX-License-Identifier: Apache-2.0
"""Horizon's settings for the browser tests."""

import os
from pathlib import Path

from openstack_dashboard import settings

globals().update((name, value) for name, value in vars(settings).items()
                 if name.isupper())

_DIRECTORY = Path(os.environ['DASHBOARD_TEST_DIRECTORY'])
DEBUG = False
COMPRESS_ENABLED = False
COMPRESS_OFFLINE = False
ALLOWED_HOSTS = ['127.0.0.1']
SECRET_KEY = 'only-for-tests'
STATIC_ROOT = str(_DIRECTORY / 'static')
OPENSTACK_KEYSTONE_URL = os.environ['DASHBOARD_TEST_KEYSTONE'] + '/v3'
SESSION_ENGINE = 'django.contrib.sessions.backends.signed_cookies'
CACHES = {'default': {
    'BACKEND': 'django.core.cache.backends.locmem.LocMemCache'}}
POLICY_CHECK_FUNCTION = None
