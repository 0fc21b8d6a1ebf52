# SPDX-License-Identifier: Apache-2.0
"""Hosts of their own for compute services that share a process.

Nova's functional tests run all services in one process, so that what a
service reads from its configuration is that of the service that was started
last.  Here each compute service has its own ``host``, ``state_path`` and
``instances_path``, as it would have on a machine of its own.

Whose code runs is found in the stack: the nearest method of a compute
service, its manager or its driver.  A thread that none of these started
itself belongs to the host that its starter belonged to.
"""

import os
import sys
import threading

import fixtures
from nova import service
from nova.compute import manager
from nova.virt import driver
from oslo_config import cfg

_OPTIONS = ('host', 'state_path', 'instances_path')
_TAG = 'dedup_test_host'


def current():
    """Return the name of the host whose code runs, None if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        host = _host(frame.f_locals.get('self'))
        if host:
            return host
        frame = frame.f_back
    return getattr(threading.current_thread(), _TAG, None)


def _host(owner):
    if isinstance(owner, driver.ComputeDriver):
        owner = getattr(getattr(owner, 'virtapi', None), '_compute', None)
    if isinstance(owner, manager.ComputeManager):
        return getattr(owner, 'host', None)
    if (isinstance(owner, service.Service)
            and getattr(owner, 'binary', None) == 'nova-compute'):
        return owner.host
    return None


class HostsFixture(fixtures.Fixture):
    """Give each host its own name and directories.

    :param path: directory for those of all hosts
    :param options: callable(state_path) -> {(group, option): value}, which
        a host has in addition
    :param shared: whether they have the same instances_path
    """

    def __init__(self, path, options, shared=False):
        super().__init__()
        self._path = path
        self._shared = shared
        self._options = options

    def _of(self, host, group, name):
        """Return an option's value, None if it is that of all hosts."""
        if group is None and name == 'host':
            return host
        if group is None and name in _OPTIONS:
            return self.directory(host, name)
        return self._options(self.directory(host, 'state_path')).get(
            (group, name))

    def directory(self, host, option):
        """Return a host's state_path or instances_path, which exists."""
        if self._shared and option == 'instances_path':
            host = 'shared'
        path = os.path.join(self._path, host, option)
        os.makedirs(path, exist_ok=True)
        return path

    def _setUp(self):
        original = cfg.ConfigOpts._get
        start = threading.Thread.start
        names = {name for _group, name in self._options('')}.union(_OPTIONS)

        def of_host(conf, name, group=None, namespace=None):
            host = current() if name in names else None
            value = host and self._of(host, getattr(group, 'name', group),
                                      name)
            return value or original(conf, name, group, namespace)

        def start_tagged(thread):
            setattr(thread, _TAG, current())
            start(thread)

        self.useFixture(fixtures.MonkeyPatch(
            'oslo_config.cfg.ConfigOpts._get', of_host))
        self.useFixture(fixtures.MonkeyPatch(
            'threading.Thread.start', start_tagged))


def listing(path, *names):
    """Return which of some names are in a directory."""
    return sorted(set(os.listdir(path)) & set(names))
