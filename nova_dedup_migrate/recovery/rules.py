# SPDX-License-Identifier: Apache-2.0
"""What to do about a live migration that no thread runs: one table.

Pure: an Observation goes in, a Decision comes out.  The first rule that
matches wins; doc/source/contributor/driver.rst shows the same table, and a
test compares them.  Where nothing is certain the last rule waits, until
the operation's deadline has passed; then the instance goes to ERROR.
"""

from collections.abc import Callable
import dataclasses

from nova_dedup_migrate.operations import operation as operations

# Where Nova's database has the instance.
GONE = 'gone'
AT_SOURCE = 'at source'
AT_DESTINATION = 'at destination'
ELSEWHERE = 'elsewhere'

# The guest on the source, as libvirt has it.
UNKNOWN = 'unknown'
#: No domain.  libvirt undefines it only after a migration it has confirmed.
ABSENT = 'absent'
#: A domain that is shut off.
SHUT_OFF = 'shut off'
#: Running, or paused by its user; no job.
PRESENT = 'present'
#: libvirt still migrates it.
MIGRATING = 'migrating'
#: Stopped by a migration that libvirt has not ended.
LEAVING = 'leaving'
#: Runs on the destination, which still fetches memory from here.
POSTCOPY = 'post-copy'
POSTCOPY_FAILED = 'post-copy failed'

# The guest on the destination.
ARRIVING = 'arriving'
#: Its agent and its libvirt have the guest running.
RUNNING = 'running'
#: One of them has; the other does not answer.
CLAIMED = 'claimed'
#: Neither has a guest that runs.
NONE = 'none'
#: One of them has none; the other does not answer.
UNSEEN = 'unseen'

# Actions.
LEAVE = 'leave'
FORGET = 'forget'
HANDS_OFF = 'hands off'
WAIT = 'wait'
ABORT_JOB = 'abort job'
FINISH = 'finish'
CLOSE = 'close'
ROLL_BACK = 'roll back'
FAIL = 'fail'

#: Statuses of a migration in which its request may still be in the queue
#: of this nova-compute.
_QUEUED = ('accepted',)
#: Times that Nova's last steps may fail before the instance goes to ERROR.
MAX_FAILURES = 5


@dataclasses.dataclass(frozen=True)
class Observation:
    """A migration, its instance and its guest at one moment.

    :ivar owner: the thread that has it in hand, '' if there is none
    :ivar phase: of the operation
    :ivar instance: GONE, AT_SOURCE, AT_DESTINATION or ELSEWHERE
    :ivar host: that the instance is on
    :ivar migrating: whether its task state is MIGRATING
    :ivar deleting: whether Nova is deleting it
    :ivar status: of Nova's migration
    :ivar superseded: whether the instance has a newer migration
    :ivar quiet: seconds without a change of phase and status
    :ivar patience: seconds of quiet after which a request is lost
    :ivar here: the guest on the source
    :ivar there: the guest on the destination
    :ivar failures: how often Nova's last steps have failed
    :ivar overdue: whether the operation's deadline has passed
    :ivar reason: why something is UNKNOWN, or the last failure
    """

    owner: str = ''
    phase: str = operations.RUNNING
    instance: str = AT_SOURCE
    host: str = ''
    migrating: bool = True
    deleting: bool = False
    status: str = 'running'
    superseded: bool = False
    quiet: float = 0.0
    patience: float = 0.0
    here: str = UNKNOWN
    there: str = UNKNOWN
    failures: int = 0
    overdue: bool = False
    reason: str = ''


@dataclasses.dataclass(frozen=True)
class Rule:
    """One line of the table.

    :ivar name: for the log and the documentation
    :ivar when: whether it matches
    :ivar action: what to do
    :ivar why: for the log, the documentation and the fault of the instance
    """

    name: str
    when: Callable[[Observation], bool]
    action: str
    why: str


@dataclasses.dataclass(frozen=True)
class Decision:
    """:ivar rule: name of the rule that matched"""

    rule: str
    action: str
    why: str


RULES = (
    Rule('owned', lambda at: bool(at.owner), LEAVE,
         'a thread of this nova-compute runs it'),
    Rule('deleted', lambda at: at.instance == GONE, FORGET,
         'the instance was deleted'),
    Rule('being deleted', lambda at: at.deleting, WAIT,
         'Nova is deleting the instance'),
    Rule('superseded', lambda at: at.superseded, FORGET,
         'the instance has a newer migration'),
    Rule('elsewhere', lambda at: at.instance == ELSEWHERE, HANDS_OFF,
         'the instance was evacuated or moved to another host'),
    Rule('cannot be closed',
         lambda at: at.instance == AT_DESTINATION
         and at.failures >= MAX_FAILURES, HANDS_OFF,
         'the instance is on the destination, but what is left on the '
         'source could not be removed'),
    Rule('arrived', lambda at: at.instance == AT_DESTINATION, CLOSE,
         'the destination has taken the instance over'),
    Rule('not begun',
         lambda at: not at.migrating and at.phase == operations.REQUESTED,
         FORGET, 'the request came to nothing before Nova began'),
    Rule('rolled back',
         lambda at: not at.migrating and at.phase in (
             operations.ROLLING_BACK, operations.STUCK), CLOSE,
         'the instance stays on the source'),
    Rule('changed', lambda at: not at.migrating, HANDS_OFF,
         'the task state of the instance was reset'),
    Rule('failed too often',
         lambda at: at.failures >= MAX_FAILURES
         and at.phase != operations.STUCK, FAIL,
         "Nova's last steps failed %d times" % MAX_FAILURES),
    Rule('given up',
         lambda at: at.failures >= MAX_FAILURES, WAIT,
         "Nova's last steps failed %d times; an operator has to reset the "
         'state of the instance' % MAX_FAILURES),
    Rule('still queued',
         lambda at: at.phase == operations.REQUESTED
         and at.quiet < at.patience, WAIT,
         'the request may still come'),
    Rule('job', lambda at: at.here == MIGRATING and not at.overdue, ABORT_JOB,
         'libvirt still migrates a guest that no thread watches'),
    Rule('post-copy failed', lambda at: at.here == POSTCOPY_FAILED
         and at.phase != operations.STUCK, FAIL,
         'post-copy failed: each host has a part of the memory'),
    Rule('post-copy', lambda at: at.here == POSTCOPY and not at.overdue,
         WAIT, 'the destination still fetches memory from the source'),
    Rule('on both hosts',
         lambda at: at.here == PRESENT and at.there in (RUNNING, CLAIMED)
         and at.phase != operations.STUCK,
         FAIL, 'both hosts report a guest that runs'),
    Rule('stayed',
         lambda at: at.here == PRESENT
         and at.there not in (RUNNING, CLAIMED), ROLL_BACK,
         'the guest is on the source'),
    Rule('left',
         # If the guest is nowhere, only libvirt's own success counts: the
         # source's disks may be the only ones.
         lambda at: at.here == ABSENT
         and (at.there in (RUNNING, CLAIMED)
              or at.there in (NONE, UNSEEN)
              and at.phase == operations.FINISHING), FINISH,
         'libvirt on the source has confirmed the migration'),
    Rule('arrived, not confirmed',
         lambda at: at.here in (SHUT_OFF, LEAVING)
         and at.there == RUNNING, FINISH,
         'agent and libvirt of the destination have the guest'),
    Rule('nowhere',
         lambda at: (at.here == SHUT_OFF and at.there in (NONE, UNSEEN)
                     or at.here == LEAVING and at.there == NONE), ROLL_BACK,
         'neither host has a guest that runs'),
    Rule('overdue', lambda at: at.overdue and at.phase != operations.STUCK,
         FAIL, 'it is not known which host has the guest'),
    Rule('unknown', lambda at: True, WAIT,
         'it is not known which host has the guest'),
)


def decide(at: Observation) -> Decision:
    """Return the Decision; the last rule always matches."""
    rule = next(rule for rule in RULES if rule.when(at))
    return Decision(rule.name, rule.action, rule.why)
