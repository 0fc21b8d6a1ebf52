# SPDX-License-Identifier: Apache-2.0
"""Making one call of a service fail, or never return."""

import dataclasses
import inspect
import threading

import fixtures
from nova import exception
import oslo_messaging

#: What an injected fault is, and the error that the caller sees.
BUS = 'message bus'
LIBVIRT = 'libvirt'
DEATH = 'process death'
ERRORS = {
    BUS: lambda: oslo_messaging.MessagingTimeout('no answer'),
    LIBVIRT: lambda: exception.HypervisorUnavailable(),
}


class Dead(BaseException):
    """Ends a thread of a process that has died, when the test is over."""


@dataclasses.dataclass
class Fault:
    """A fault that is to come, or has come.

    :ivar kind: BUS, LIBVIRT or DEATH
    :ivar after: whether the call is carried out, and its answer is lost
    :ivar times: so many calls are still to fail
    :ivar met: set when the first has
    """

    kind: str
    after: bool = False
    times: int = 1
    met: threading.Event = dataclasses.field(
        default_factory=threading.Event)


class Faults(fixtures.Fixture):
    """Replaces methods for the time of a test."""

    def _setUp(self):
        self._lock = threading.Lock()
        self._over = threading.Event()
        # before all else is taken down: the threads still need it
        self.addCleanup(self._over.set)

    def end(self):
        """Let threads that were stopped end."""
        self._over.set()

    def inject(self, owner, name, fault, when=None):
        """Have a call fail.

        :param owner: an object, or a class for all of its objects
        :param name: of the method
        :param when: callable(arguments of the method, with the object where
            the owner is a class) -> whether it is that call
        """
        static = inspect.getattr_static(owner, name)
        method = getattr(owner, name)

        def replaced(*args, **kwargs):
            if when is not None and not when(*args, **kwargs):
                return method(*args, **kwargs)
            with self._lock:
                failing = fault.times > 0
                fault.times -= failing
            if not failing:
                return method(*args, **kwargs)
            if fault.after:
                method(*args, **kwargs)
            fault.met.set()
            self._fail(fault)

        if inspect.isclass(owner) and isinstance(static, staticmethod):
            replaced = staticmethod(replaced)
        self.useFixture(_Replaced(owner, name, replaced))

    def _fail(self, fault):
        if fault.kind == DEATH:
            self._over.wait()
            raise Dead
        raise ERRORS[fault.kind]()


class _Replaced(fixtures.Fixture):

    def __init__(self, owner, name, value):
        super().__init__()
        self._what = owner, name, value

    def _setUp(self):
        owner, name, value = self._what
        own = name in vars(owner)
        before = inspect.getattr_static(owner, name)
        setattr(owner, name, value)
        if own:
            self.addCleanup(setattr, owner, name, before)
        else:
            self.addCleanup(delattr, owner, name)
