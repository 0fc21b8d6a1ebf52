# SPDX-License-Identifier: Apache-2.0
"""Makes Python find nova.virt.dedup_migrate, and no other module.

Nova imports ``nova.virt.<compute_driver>`` and has no entry point for
drivers.  A file of ours below ``nova/`` would belong to two packages at once,
and would hide a Nova that is installed in another directory, as an editable
one or a distribution's is.  So the module is here, and this finder gives it
that name.

``nova-dedup-migrate.pth`` imports this module when Python starts, in every
program of the environment: it must need nothing and do little.
"""

import os
import sys

NAME = 'nova.virt.dedup_migrate'


class Finder:
    """Finds one module; it comes last, after all other finders."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != NAME:
            return None
        from importlib import util
        return util.spec_from_file_location(
            name, os.path.join(os.path.dirname(__file__), 'shim.py'))


sys.meta_path.append(Finder)
