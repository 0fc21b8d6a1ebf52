# SPDX-License-Identifier: Apache-2.0
"""Nova's own functional tests with our driver in place of LibvirtDriver.

Nova's fixtures stand for libvirt, the database and the other services,
so they need no privilege, only the packages of Nova's tests.

They run as that release runs its own: in native threads since 34, on
eventlet before.  The fixtures of 33 and 32 know only the latter.  Nova
decides that when its tests are imported, which has to come before all
else of Nova.
"""

import importlib
from importlib import metadata
import os

THREADS = int(metadata.version('nova').split('.')[0]) >= 34

os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', str(THREADS))
importlib.import_module('nova.tests.functional')
# Where 32 does it.
importlib.import_module('nova.test')
