# SPDX-License-Identifier: Apache-2.0
"""What every implementation of hypervisor.base has to do.

A test class derives from one of the suites here and from a TestCase
that says what its guests are, with two methods:

make(name)
    Return a Guest that boots self.image, not started.  All guests of a
    test share that disk.  The guest is destroyed after the test.
console(guest)
    Return the bytes the guest has written to COM1 on that host.

What an implementation refuses with NotOffered is skipped, with the reason
it gives.

The guest is the boot sector: it checks its own memory all the time and
prints 'B' while it is right.
"""

from nova_dedup_migrate.tests.functional.hypervisor.suites import dedup
from nova_dedup_migrate.tests.functional.hypervisor.suites import facts
from nova_dedup_migrate.tests.functional.hypervisor.suites import lifecycle
from nova_dedup_migrate.tests.functional.hypervisor.suites import migration
from nova_dedup_migrate.tests.functional.hypervisor.suites import parameters
from nova_dedup_migrate.tests.functional.hypervisor.suites import postcopy
from nova_dedup_migrate.tests.functional.hypervisor.suites import stock
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite

DedupSuite = dedup.DedupSuite
FactsSuite = facts.FactsSuite
LifecycleSuite = lifecycle.LifecycleSuite
MigrationSuite = migration.MigrationSuite
ParametersSuite = parameters.ParametersSuite
PostcopySuite = postcopy.PostcopySuite
StockSuite = stock.StockSuite
Suite = suite.Suite
MIB = suite.MIB
