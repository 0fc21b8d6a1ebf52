# SPDX-License-Identifier: Apache-2.0
import ast
import dataclasses
import itertools
import pathlib

from nova_dedup_migrate import recovery
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.tests import base

PLACES = (rules.GONE, rules.AT_SOURCE, rules.AT_DESTINATION,
          rules.ELSEWHERE)
HERE = (rules.UNKNOWN, rules.ABSENT, rules.SHUT_OFF, rules.PRESENT,
        rules.MIGRATING, rules.LEAVING, rules.POSTCOPY,
        rules.POSTCOPY_FAILED)
THERE = (rules.UNKNOWN, rules.ARRIVING, rules.RUNNING, rules.CLAIMED,
         rules.NONE, rules.UNSEEN)
ACTIONS = (rules.LEAVE, rules.FORGET, rules.HANDS_OFF, rules.WAIT,
           rules.ABORT_JOB, rules.FINISH, rules.CLOSE, rules.ROLL_BACK,
           rules.FAIL)
MANY = rules.MAX_FAILURES

#: What each rule is there for: fields of an Observation, of which the
#: others are: no owner, running, at the source, migrating, not overdue,
#: no failures, the guests unknown.
CASES = {
    'owned': [{'owner': 'live migration'},
              {'owner': "Nova's queue", 'here': rules.PRESENT},
              {'owner': 'x', 'instance': rules.GONE}],
    'deleted': [{'instance': rules.GONE},
                {'instance': rules.GONE, 'superseded': True}],
    'being deleted': [{'deleting': True, 'migrating': False},
                      {'deleting': True, 'migrating': False,
                       'instance': rules.ELSEWHERE, 'superseded': True}],
    'superseded': [{'superseded': True},
                   {'superseded': True, 'instance': rules.ELSEWHERE},
                   {'superseded': True, 'here': rules.MIGRATING}],
    'elsewhere': [{'instance': rules.ELSEWHERE},
                  {'instance': rules.ELSEWHERE, 'migrating': False,
                   'failures': MANY}],
    'cannot be closed': [{'instance': rules.AT_DESTINATION,
                          'failures': MANY}],
    'arrived': [{'instance': rules.AT_DESTINATION, 'failures': MANY - 1},
                {'instance': rules.AT_DESTINATION, 'migrating': False,
                 'phase': operations.STUCK}],
    'not begun': [{'migrating': False, 'phase': operations.REQUESTED}],
    'rolled back': [{'migrating': False, 'phase': operations.ROLLING_BACK},
                    {'migrating': False, 'phase': operations.STUCK,
                     'failures': MANY}],
    'changed': [{'migrating': False, 'phase': phase} for phase in (
        operations.PREPARING, operations.RUNNING, operations.FINISHING)],
    'failed too often': [{'failures': MANY, 'here': rules.PRESENT},
                         {'failures': MANY + 1,
                          'phase': operations.ROLLING_BACK,
                          'here': rules.SHUT_OFF, 'there': rules.NONE},
                         {'failures': MANY, 'here': rules.ABSENT,
                          'phase': operations.FINISHING,
                          'there': rules.RUNNING}],
    'given up': [{'failures': MANY, 'phase': operations.STUCK,
                  'here': here} for here in HERE],
    'still queued': [{'phase': operations.REQUESTED, 'quiet': 89.0,
                      'patience': 90.0, 'here': rules.PRESENT,
                      'there': rules.NONE}],
    'job': [{'here': rules.MIGRATING},
            {'here': rules.MIGRATING, 'phase': operations.STUCK},
            {'here': rules.MIGRATING, 'there': rules.RUNNING}],
    'post-copy failed': [{'here': rules.POSTCOPY_FAILED},
                         {'here': rules.POSTCOPY_FAILED, 'overdue': True,
                          'there': rules.RUNNING}],
    'post-copy': [{'here': rules.POSTCOPY, 'there': there}
                  for there in THERE],
    'on both hosts': [{'here': rules.PRESENT, 'there': there}
                      for there in (rules.RUNNING, rules.CLAIMED)],
    'stayed': [{'here': rules.PRESENT, 'there': there} for there in (
        rules.UNKNOWN, rules.ARRIVING, rules.NONE, rules.UNSEEN)] + [
        {'here': rules.PRESENT, 'overdue': True},
        {'here': rules.PRESENT, 'phase': operations.STUCK},
        {'here': rules.PRESENT, 'phase': operations.REQUESTED,
         'quiet': 90.0, 'patience': 90.0}],
    'left': [{'here': rules.ABSENT, 'there': there} for there in (
        rules.RUNNING, rules.CLAIMED)] + [
        {'here': rules.ABSENT, 'there': there,
         'phase': operations.FINISHING} for there in (
            rules.NONE, rules.UNSEEN)],
    'arrived, not confirmed': [{'here': here, 'there': rules.RUNNING}
                               for here in (rules.SHUT_OFF, rules.LEAVING)],
    'nowhere': [{'here': rules.SHUT_OFF, 'there': rules.NONE},
                {'here': rules.SHUT_OFF, 'there': rules.UNSEEN},
                {'here': rules.LEAVING, 'there': rules.NONE,
                 'overdue': True}],
    'overdue': [{'overdue': True},
                {'overdue': True, 'here': rules.MIGRATING},
                {'overdue': True, 'here': rules.POSTCOPY},
                {'overdue': True, 'here': rules.LEAVING,
                 'there': rules.CLAIMED},
                {'overdue': True, 'here': rules.ABSENT,
                 'there': rules.ARRIVING}],
    'unknown': [{}, {'here': rules.ABSENT, 'there': rules.NONE},
                {'here': rules.ABSENT, 'there': rules.UNSEEN},
                {'here': rules.SHUT_OFF, 'there': rules.CLAIMED},
                {'here': rules.LEAVING, 'there': rules.UNSEEN},
                {'here': rules.ABSENT, 'there': rules.UNKNOWN},
                {'overdue': True, 'phase': operations.STUCK},
                {'here': rules.POSTCOPY_FAILED, 'phase': operations.STUCK},
                {'here': rules.PRESENT, 'there': rules.RUNNING,
                 'phase': operations.STUCK}],
}
EXPECTED = {
    'owned': 'leave', 'deleted': 'forget', 'being deleted': 'wait',
    'superseded': 'forget',
    'elsewhere': 'hands off', 'cannot be closed': 'hands off',
    'arrived': 'close', 'not begun': 'forget', 'rolled back': 'close',
    'changed': 'hands off', 'failed too often': 'fail',
    'given up': 'wait', 'still queued': 'wait', 'job': 'abort job',
    'post-copy failed': 'fail', 'post-copy': 'wait',
    'on both hosts': 'fail', 'stayed': 'roll back', 'left': 'finish',
    'arrived, not confirmed': 'finish', 'nowhere': 'roll back',
    'overdue': 'fail', 'unknown': 'wait',
}


class TableTest(base.TestCase):

    def test_all_are_tested(self):
        names = [rule.name for rule in rules.RULES]
        self.assertEqual(len(set(names)), len(names))
        self.assertEqual(names, list(CASES))

    def test_cases(self):
        for name, cases in CASES.items():
            for case in cases:
                found = rules.decide(rules.Observation(**case))
                self.assertEqual((name, EXPECTED[name]),
                                 (found.rule, found.action), case)

    def test_decision_is_the_rule(self):
        for rule in rules.RULES:
            found = rules.decide(rules.Observation(**CASES[rule.name][0]))
            self.assertEqual(rules.Decision(rule.name, rule.action,
                                            rule.why), found)

    def test_first_one_wins(self):
        """Cases that later rules match as well."""
        for index, rule in enumerate(rules.RULES[:-1]):
            for case in CASES[rule.name]:
                at = rules.Observation(**case)
                matching = [one.name for one in rules.RULES
                            if one.when(at)]
                self.assertEqual(rule.name, matching[0])
                self.assertFalse(any(one.when(at)
                                     for one in rules.RULES[:index]))
                # the last one is for whatever is left
                self.assertEqual('unknown', matching[-1])

    def test_actions(self):
        for rule in rules.RULES:
            self.assertIn(rule.action, ACTIONS, rule.name)
        self.assertEqual(set(ACTIONS),
                         {rule.action for rule in rules.RULES})

    def test_words(self):
        """They are for operators: no rule without a reason."""
        whys = [rule.why for rule in rules.RULES]
        for why in whys:
            self.assertGreater(len(why), 10)
            self.assertFalse(why.endswith('.'), why)

    def test_pure(self):
        """Neither Nova nor libvirt: all they know was handed to them."""
        allowed = {'nova_dedup_migrate', 'collections', 'concurrent',
                   'contextlib', 'dataclasses', 'math', 'threading', 'time',
                   'typing', 'oslo_log'}
        modules = list(pathlib.Path(recovery.__file__).parent.glob('*.py'))
        self.assertGreater(len(modules), 3)
        for path in modules:
            for node in ast.walk(ast.parse(path.read_text())):
                names = ([node.module] if isinstance(node, ast.ImportFrom)
                         else [one.name for one in node.names]
                         if isinstance(node, ast.Import) else [])
                for name in names:
                    self.assertIn(name.split('.')[0], allowed, path)
                    self.assertFalse(name.startswith(
                        'nova_dedup_migrate.compute'), path)


def observations():
    """Yield all combinations of what can be observed, without an owner."""
    values = {
        'phase': [phase for phase in operations.PHASES
                  if phase != operations.ENDED],
        'instance': PLACES, 'migrating': (True, False),
        'superseded': (False, True), 'patience': (0.0, 90.0),
        'here': HERE, 'there': THERE, 'failures': (MANY - 1, MANY),
        'overdue': (False, True)}
    for combination in itertools.product(*values.values()):
        yield rules.Observation(
            quiet=60.0, **dict(zip(values, combination, strict=True)))


class InvariantTest(base.TestCase):
    """What must hold whatever the table says, for all observations."""

    def test_all(self):
        broken = {}
        count = 0
        for at in observations():
            count += 1
            action = rules.decide(at).action
            for name, (actions, forbidden) in _INVARIANTS.items():
                if action in actions and forbidden(at):
                    broken.setdefault(name, (action, at))
        self.assertEqual({}, broken)
        self.assertEqual(6 * 4 * 2 * 2 * 2 * 8 * 6 * 2 * 2, count)

    def test_nothing_is_done_while_nova_deletes_it(self):
        for at in observations():
            at = dataclasses.replace(at, deleting=True)
            self.assertIn(rules.decide(at).action,
                          (rules.WAIT, rules.FORGET))

    def test_each_forbids_something(self):
        some = list(itertools.islice(observations(), 0, None, 7))
        for name, (actions, forbidden) in _INVARIANTS.items():
            self.assertLessEqual(set(actions), set(ACTIONS))
            self.assertTrue(any(forbidden(at) for at in some), name)

    def test_owned(self):
        """Whatever else is observed, or is not observed at all."""
        for at in itertools.islice(observations(), 0, None, 97):
            self.assertNotEqual(rules.LEAVE, rules.decide(at).action)
            self.assertEqual(rules.LEAVE, rules.decide(dataclasses.replace(
                at, owner='live migration')).action)

    def test_actions_do_not_depend_on_words(self):
        at = rules.Observation(here=rules.PRESENT)
        for fields in {'reason': 'x'}, {'host': 'x'}, {'status': 'x'}:
            self.assertEqual(rules.decide(at), rules.decide(
                dataclasses.replace(at, **fields)))


_NOVAS = (rules.FINISH, rules.ROLL_BACK)
#: Those that change an instance, its guest or its migration.
_CHANGING = (rules.FINISH, rules.ROLL_BACK, rules.CLOSE, rules.FAIL,
             rules.ABORT_JOB)
#: {what must hold: (actions, when none of them may be taken)}
_INVARIANTS = {
    'disks of the source outlive a guest that is nowhere': (
        (rules.FINISH,), lambda at: (
            at.there in (rules.NONE, rules.UNSEEN)
            and at.phase != operations.FINISHING)),
    "Nova's steps are for instances of the source": (
        _NOVAS, lambda at: at.instance != rules.AT_SOURCE),
    "Nova's steps are for instances that migrate": (
        _NOVAS, lambda at: not at.migrating),
    'a newer migration is not disturbed': (
        _CHANGING, lambda at: at.superseded),
    'an instance elsewhere is not touched': (
        _CHANGING, lambda at: at.instance == rules.ELSEWHERE),
    'a guest on the source is not finished': (
        (rules.FINISH,), lambda at: at.here == rules.PRESENT),
    'a guest on the destination is not rolled back': (
        (rules.ROLL_BACK,),
        lambda at: at.there in (rules.RUNNING, rules.CLAIMED)),
    'one answer is not enough to give up a guest of the source': (
        (rules.FINISH,), lambda at: (
            at.here in (rules.SHUT_OFF, rules.LEAVING)
            and at.there != rules.RUNNING)),
    'nothing is destroyed while the source is unknown': (
        (*_NOVAS, rules.ABORT_JOB), lambda at: at.here == rules.UNKNOWN),
    'a guest that moves is neither finished nor rolled back': (
        _NOVAS, lambda at: at.here in (rules.MIGRATING, rules.POSTCOPY,
                                       rules.POSTCOPY_FAILED)),
    'a guest that arrives is not rolled back unless it is here': (
        _NOVAS, lambda at: (at.there == rules.ARRIVING
                            and at.here != rules.PRESENT)),
    "Nova's steps do not fail without end": (
        (*_NOVAS, rules.ABORT_JOB),
        lambda at: at.failures >= rules.MAX_FAILURES),
    'nor does closing on the destination': (
        (rules.CLOSE,), lambda at: (
            at.failures >= rules.MAX_FAILURES
            and at.instance == rules.AT_DESTINATION)),
    'an instance is set to ERROR once': (
        (rules.FAIL,), lambda at: at.phase == operations.STUCK),
    'a job is ended only where there is one': (
        (rules.ABORT_JOB,), lambda at: at.here != rules.MIGRATING),
    'waiting has an end': (
        (rules.WAIT, rules.ABORT_JOB), lambda at: (
            at.overdue and at.phase != operations.STUCK
            and not at.quiet < at.patience)),
    'a request that may come is waited for': (
        _CHANGING, lambda at: (
            at.phase == operations.REQUESTED and at.quiet < at.patience
            and at.migrating and at.instance == rules.AT_SOURCE
            and at.failures < rules.MAX_FAILURES)),
    'only a deleted or newer one is forgotten': (
        (rules.FORGET,), lambda at: not (
            at.instance == rules.GONE or at.superseded
            or at.phase == operations.REQUESTED)),
}
