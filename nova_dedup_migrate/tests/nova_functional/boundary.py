# SPDX-License-Identifier: Apache-2.0
"""Rows of the boundary between Nova and us: what a step that fails leaves.

A row makes one step of Nova's fail while a migration is finished or rolled
back, waits until no thread runs it any more, and compares all that there is
with a migration in which nothing failed.  Then the instance migrates once
more, which has to go well and to leave nothing either.

NOVA_BOUNDARY=all in the environment runs all rows, otherwise those that are
marked ``quick``.  NOVA_BOUNDARY_RECORD names a directory; each row writes a
file there, see record().
"""

import json
import os
import re
import shutil
import time
import unittest

from nova import context as nova_context
from nova import objects

from nova_dedup_migrate.tests import nova_functional
from nova_dedup_migrate.tests.nova_functional import adopt
from nova_dedup_migrate.tests.nova_functional import boundary_steps
from nova_dedup_migrate.tests.nova_functional import faults
from nova_dedup_migrate.tests.nova_functional import world

ALL = os.environ.get('NOVA_BOUNDARY') == 'all'
_RECORD = 'NOVA_BOUNDARY_RECORD'

#: Before a line about what the next migration has left.
_AFTER = ', then '
#: (class, scenario) -> snapshot of a migration in which nothing failed
_GOOD = {}


def record(row):
    """Write a row for ``python -m benchmarks.nova_boundary``.

    :param row: dict with ``name``, ``injected``, ``said``, ``left`` and
        ``ignored`` (lists of lines) and ``ok``
    """
    path = os.environ.get(_RECORD)
    if path:
        name = re.sub(r'[^A-Za-z0-9]+', '-', row['name'])
        with open(os.path.join(path, name + '.json'), 'w') as file:
            json.dump(row, file)


# Before setUp() of a subclass sets options: only the cleanups of Nova's
# fixtures reset them, so those of a skipped test would be the next one's.
@unittest.skipIf(adopt.STOCK, "Nova's own driver settles nothing")
@unittest.skipUnless(nova_functional.THREADS,
                     'Nova before 34 does not leave instances to its driver '
                     'when nova-compute starts')
class Boundary(world.World):
    """Rows are methods, made by rows() or written by hand."""

    def setUp(self):
        super().setUp()
        #: Lines about what Nova itself leaves.
        self.ignored = []

    # A row

    def row(self, name, injected, check):
        """Run check(); record what it finds.

        :param check: callable that returns (what Nova says, [what is left
            behind or wrong])
        """
        said, left, began = 'nothing', ['the row did not end'], time.time()
        try:
            said, left = check()
        except Exception as error:
            left = ['%s: %s' % (type(error).__name__, error)]
            raise
        finally:
            # Services that are stopped next wait for their threads.
            self.faults.end()
            record({'name': name, 'injected': injected, 'said': said,
                    'left': left, 'ignored': self.ignored, 'ok': not left,
                    'seconds': round(time.time() - began, 1)})
        self.assertEqual([], left, '%s: %s' % (name, said))

    def without_ignored(self, left, ignored):
        """Return the lines that Nova's own driver would not leave, too."""
        own = [line for line in left
               if line.rpartition(_AFTER)[2].startswith(ignored)
               ] if ignored else []
        self.ignored += own
        return [line for line in left if line not in own]

    def good(self):
        """Return snapshots of migrations in which nothing fails.

        :returns: dict of ``there``, ``back`` and ``rolled back``
        """
        name = type(self).__qualname__
        if name not in _GOOD:
            _GOOD[name] = self._snapshots()
        return _GOOD[name]

    def _snapshots(self):
        found = {}
        server = self.boot()
        for name, host, outcome in (('there', 'dest', 'completed'),
                                    ('back', 'src', 'completed'),
                                    ('rolled back', 'dest', 'failed')):
            (self.stays.add if outcome == 'failed'
             else self.stays.discard)(server['id'])
            self.migrate(server, host)
            self.assertTrue(self.settled(server), self.said(server))
            found[name] = self.neutral(server)
            self.assertEqual(outcome, found[name]['migration'])
        self.stays.discard(server['id'])
        self.api.delete_server(server['id'])
        self._wait_until_deleted(server)
        self.neutron._port_bindings[self.neutron.port_1['id']].clear()
        return found

    def neutral(self, server):
        """Return a snapshot that says nothing of which server it is."""
        return json.loads(json.dumps(
            self.snapshot(server), default=str).replace(
                server['id'], 'instance'))

    def compare(self, server, wanted):
        """Return what differs from a migration in which nothing failed."""
        if not self.settled(server):
            return ['it has not come to an end: %s' % self.said(server)]
        return world.difference(wanted, self.neutral(server))

    def arrived(self, server):
        """Check a server that has arrived; then migrate it back."""
        good = self.good_now
        left = self.compare(server, good['there'])
        said = self.said(server)
        left += self._and_then(server, 'src', good['back'], 'back')
        return said, left

    def rolled_back(self, server, ignored=()):
        """Check one that has stayed; then migrate it after all.

        :param ignored: see boundary_steps.Step
        """
        good = self.good_now
        left = self.compare(server, good['rolled back'])
        said = self.said(server)
        if boundary_steps.DIRECTORY in ignored:
            # The operator's part, see doc/source/admin/recovery.rst.
            shutil.rmtree(self.instance_directory('dest', server),
                          ignore_errors=True)
        self.stays.discard(server['id'])
        left += self._and_then(server, 'dest', good['there'], 'once more')
        return said, left

    def _and_then(self, server, host, wanted, how):
        try:
            self.migrate(server, host)
        except Exception as error:
            return ['it does not migrate %s: %s' % (how, error)]
        return ['after migrating %s%s%s' % (how, _AFTER, line)
                for line in self.compare(server, wanted)]

    # Faults

    def owner(self, path):
        """Return (object, name of its method) of a path.

        :param path: host.manager.driver.cleanup and the like, or
            a versioned object's method: Migration.save
        """
        first, *rest, name = path.split('.')
        if first in self.computes:
            found = self.computes[first]
        else:
            found = getattr(objects, first)
        for attribute in rest:
            found = getattr(found, attribute)
        return found, name

    def fail(self, step, kind, server):
        """Inject a fault into a step; return faults.Fault."""
        def when(*args, **kwargs):
            return ((not step.late
                     or self.domain('dest', server['id']) is not None)
                    and (step.when is None or step.when(*args, **kwargs)))

        fault = faults.Fault(kind, after=step.after)
        owner, name = self.owner(step.path)
        self.faults.inject(owner, name, fault, when)
        return fault

    def ready(self, stays=False):
        """Return a server that is about to migrate."""
        self.good_now = self.good()
        server = self.boot()
        if stays:
            self.stays.add(server['id'])
        return server

    def check_step(self, step, kind, arrives):
        server = self.ready(not arrives)
        fault = self.fail(step, kind, server)
        self.migrate(server, 'dest')
        if not self.until(fault.met.is_set):
            return self.said(server), ['the step was not reached']
        if kind == faults.DEATH:
            self.die(step.host)
            self.start_again(step.host)
        said, left = (self.arrived(server) if arrives
                      else self.rolled_back(server, step.ignored))
        return said, self.without_ignored(left, step.ignored)

    def admin(self):
        return nova_context.get_admin_context()


def rows(steps, arrives, variant=''):
    """Return {name of a test: method} for each fault of each step.

    :param steps: Steps
    :param arrives: whether the guest arrives
    :param variant: of the instance, for the name
    """
    made = {}
    for step in steps:
        for kind in step.kinds:
            if ALL or kind in step.quick:
                name, method = _row(step, kind, arrives, variant)
                made[name] = method
    return made


def _row(step, kind, arrives, variant):
    what = 'finishing' if arrives else 'rolling back'
    if variant:
        what += ' (%s)' % variant
    name = '%s: %s, %s' % (what, step.name, kind)

    def test(self):
        self.row(name, '%s at %s' % (kind, step.host), lambda:
                 self.check_step(step, kind, arrives))
    test.__doc__ = name
    return 'test_' + re.sub(
        r'[^a-z0-9]+', '_', name.lower()).strip('_'), test
