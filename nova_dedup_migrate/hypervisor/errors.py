# SPDX-License-Identifier: Apache-2.0
"""Errors of the hypervisor layer.

Each error has one message template and keeps what it was made of as
attributes, so that a caller decides by field and a user reads one
sentence.
"""

from nova_dedup_migrate import errors


class HypervisorError(errors.DedupMigrateError):
    """Base of everything this package raises on purpose."""

    template = 'hypervisor error'


class OptionError(HypervisorError, ValueError):
    template = '{option}={value!r} is not usable: {reason}'


class NotOffered(OptionError):
    """What is below has no way to do it; reason says what lacks it."""


class BinaryNotFound(HypervisorError):
    template = '{binary} does not exist or cannot be executed'


class AddressInUse(HypervisorError):
    template = '{address} is already in use'


class HypervisorUnavailable(HypervisorError):
    template = '{uri} cannot be used: {reason}'


class HypervisorRefused(HypervisorError):
    """libvirt said no; code is its VIR_ERR_ number."""

    template = '{action} of guest {name}: {reason}'


class GuestNotRunning(HypervisorError):
    template = 'guest {name} has no running process'


class GuestExited(HypervisorError):
    """The process ended by itself; log holds its last lines."""

    template = 'guest {name} exited with status {status}: {log}'


class QmpError(HypervisorError):
    """QEMU answered a command with an error."""

    template = '{command}: {description} ({error_class})'


class CommandNotFound(QmpError):
    """This QEMU does not know the command."""


class QmpTimeout(HypervisorError):
    template = '{command} was not answered within {seconds} s'


class QmpDisconnected(HypervisorError):
    template = '{command} was not answered: the QMP connection is closed'


class MalformedReply(HypervisorError):
    """What came from QEMU is not what its schema promises."""

    template = 'malformed reply: {field} is {value!r}, expected {expected}'


class AgentUnavailable(HypervisorError):
    """There is no qemu-guest-agent that could be asked."""

    template = 'the guest agent cannot be used: {reason}'


class AgentTimeout(HypervisorError):
    template = 'the guest agent did not answer {command} within {seconds} s'


class AgentError(HypervisorError):
    """The agent answered a command with an error."""

    template = '{command} in the guest: {description}'


class ChannelUnavailable(HypervisorError):
    """A port of the guest's cannot be used from here, or not any more."""

    template = 'channel {channel} cannot be used: {reason}'


class WaitTimeout(HypervisorError):
    template = '{what} did not happen within {seconds} s'


class Late(WaitTimeout):
    """The same, where there is a deadline, not a number of seconds."""

    template = '{what} did not come in time'


class DedupNotSupported(HypervisorError):
    template = 'the QEMU of guest {name} has no dedup support'


class MigrationFailed(HypervisorError):
    """The migration ended without the guest running elsewhere.

    status is QEMU's: failed or cancelled, or postcopy-paused, in which
    case the migration can still be recovered.
    """

    template = 'migration of {name} ended as {status}: {reason}'


class InvalidMigrationState(HypervisorError):
    template = 'cannot {action} while the migration is {status}'
