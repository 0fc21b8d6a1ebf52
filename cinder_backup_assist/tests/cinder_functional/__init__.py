# SPDX-License-Identifier: Apache-2.0
"""Tests that need Cinder; they run in processes of their own.

Cinder's test package decides at its import whether eventlet replaces
threads.  Here it does not, as in the daemon.
"""

import importlib
import os

os.environ.setdefault('OS_CINDER_DISABLE_EVENTLET_PATCHING', 'true')
# before any other module of Cinder, which would have oslo.service choose
importlib.import_module('cinder.tests.unit')
