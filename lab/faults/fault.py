# SPDX-License-Identifier: Apache-2.0
"""What all faults are."""

import contextlib
import dataclasses

SIDES = ('source', 'destination')
#: Note of a fault that ended the instance itself: its guest had arrived.
HAD_ARRIVED = 'it had arrived'
#: Note of one that did not: its guest had left.
HAD_LEFT = 'it had left'
#: Whether the instance has to run after those, whatever the fault.
SURVIVES = {HAD_ARRIVED: False, HAD_LEFT: True}


@dataclasses.dataclass(frozen=True)
class Scene:
    """Where a fault is injected.

    :ivar cloud: cloud.Cloud
    :ivar compute: the Compute API, of client.connect
    :ivar server: UUID of the instance
    :ivar source: lab host it leaves
    :ivar destination: lab host it is to go to
    """

    cloud: object
    compute: object
    server: str
    source: object
    destination: object

    def side(self, name):
        """Return the host of SIDES."""
        return getattr(self, name)


@dataclasses.dataclass(frozen=True)
class Fault:
    """Injected once, and undone once after a while, whatever happens.

    :ivar name: for the command line and the table
    :ivar undo_after: seconds
    :ivar survives: whether the instance has to run afterwards
    :ivar moments: of the campaign at which there is something to inject it
        into; (): at all
    """

    name: str
    undo_after: float = 2.0
    survives: bool = True
    moments: tuple = ()

    def fits(self, settings):
        """Whether a lab with these settings has what it is injected into."""
        return True

    def around(self, cloud):
        """Return a context in which the lab has what it needs.

        No instance is there when it begins and ends.
        """
        return contextlib.nullcontext()

    def inject(self, scene):
        """Do it; return what is worth a note in the table, or ''.

        A note of SURVIVES decides whether the instance has to run.

        :raises LabError: there is nothing to inject it into
        """
        raise NotImplementedError

    def has_to_run(self, note, moved):
        """Whether the instance has to run afterwards.

        :param note: what inject() has returned
        :param moved: whether Nova has it on another host than before.  If
            the source's QEMU was killed, it had sent everything by then.
        """
        if moved and not self.survives:
            return True
        return SURVIVES.get(note, self.survives)

    def undo(self, scene):
        """Undo it."""
