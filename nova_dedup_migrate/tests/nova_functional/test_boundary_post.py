# SPDX-License-Identifier: Apache-2.0
"""Each step of Nova's that follows a guest's arrival fails once."""

from nova_dedup_migrate.tests.nova_functional import boundary
from nova_dedup_migrate.tests.nova_functional import boundary_steps

BoundaryPostTest = type(
    'BoundaryPostTest', (boundary.Boundary,),
    {'__module__': __name__,
     **boundary.rows(boundary_steps.POST, arrives=True)})
