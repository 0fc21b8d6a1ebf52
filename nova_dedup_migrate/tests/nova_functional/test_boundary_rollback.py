# SPDX-License-Identifier: Apache-2.0
"""Each step of Nova's that rolls a migration back fails once."""

from nova_dedup_migrate.tests.nova_functional import boundary
from nova_dedup_migrate.tests.nova_functional import boundary_steps

BoundaryRollbackTest = type(
    'BoundaryRollbackTest', (boundary.Boundary,),
    {'__module__': __name__,
     **boundary.rows(boundary_steps.ROLLBACK, arrives=False)})
