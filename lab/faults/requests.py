# SPDX-License-Identifier: Apache-2.0
"""What a user can ask for while an instance migrates."""

import dataclasses
import time

import openstack

from lab.faults.fault import Fault

#: Seconds in which Nova has to take the request.
_TAKEN_S = 30.0
_AGAIN_S = 0.1


@dataclasses.dataclass(frozen=True)
class Request(Fault):
    """Asked again and again until it is taken or comes too late.

    :ivar method: of the Compute API, takes a migration and the instance
    """

    undo_after: float = 0.0
    method: str = ''

    def inject(self, scene):
        reason = 'there was no migration'
        deadline = time.monotonic() + _TAKEN_S
        while time.monotonic() < deadline:
            try:
                found = list(scene.compute.server_migrations(scene.server))
                for migration in found:
                    getattr(scene.compute, self.method)(
                        migration, scene.server)
                    return 'taken: %s' % migration.status
                if not found and self._is_over(scene):
                    return 'too late'
            except openstack.exceptions.HttpException as error:
                reason = str(error)
            time.sleep(_AGAIN_S)
        return 'refused: ' + reason

    def _is_over(self, scene):
        return scene.compute.get_server(scene.server).task_state is None


FAULTS = (
    Request('abort', method='abort_server_migration'),
    Request('force-complete', method='force_complete_server_migration'),
)
