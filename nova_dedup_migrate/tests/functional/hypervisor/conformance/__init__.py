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

from nova_dedup_migrate.tests.functional.hypervisor.conformance.dedup import (
           DedupSuite,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.facts import (
           FactsSuite,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.lifecycle import (
           LifecycleSuite,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.migration import (
           MigrationSuite,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.parameters import (
           ParametersSuite,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.postcopy import (
           PostcopySuite,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.stock import (
           StockSuite,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.suite import (
           MIB,
)
from nova_dedup_migrate.tests.functional.hypervisor.conformance.suite import (
           Suite,
)

__all__ = ['DedupSuite', 'FactsSuite', 'LifecycleSuite', 'MIB',
           'MigrationSuite', 'ParametersSuite', 'PostcopySuite', 'StockSuite',
           'Suite']
