# SPDX-License-Identifier: Apache-2.0
"""Tests that need Django, but not Horizon; make dashboard-check runs them."""

import django
from django.conf import settings

if not settings.configured:
    settings.configure(USE_TZ=True, TIME_ZONE='UTC', USE_I18N=False)
    django.setup()
