# SPDX-License-Identifier: Apache-2.0
"""A source and a destination in one process, for tests in namespaces.

    python -m ...ask DISK DESTINATION ROOT [USER ID]

prints the answer about DISK, found at DESTINATION below ROOT, as JSON.
With a user ID it becomes that user, with the privileged helper of root.
"""

import json
import os
import sys

from oslo_privsep import priv_context

from nova_dedup_migrate.identity import answer
from nova_dedup_migrate.identity import challenge
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.images import privileged


def main(disk, destination, root, uid=None):
    if uid is not None:
        privileged.context.start(priv_context.Method.FORK)
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    node = nodes.Node('file', disk, destination)
    with challenge.challenge([nodes.Disk('vda', (node,))]) as made:
        found = answer.answer(made.disks[0], made.sample_key,
                              nodes.Site(roots=(root,)))
        claim = made.disks[0].chain[0]
    json.dump({'copy': found.copy, 'reason': found.reason,
               'locked': claim.lock_offset is not None,
               'note': claim.note}, sys.stdout)


if __name__ == '__main__':
    main(*sys.argv[1:])
