# SPDX-License-Identifier: Apache-2.0
"""Nova's own functional tests with our driver in place of LibvirtDriver.

Nova's fixtures stand for libvirt, the database and the other services,
so they need no privilege, only the packages of Nova's tests.

They run in native threads, as nova-compute does.  Nova decides that when
its tests are imported, which has to come before all else of Nova.
"""

import importlib
import os

os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')
importlib.import_module('nova.tests.functional')
