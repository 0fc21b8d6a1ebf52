# SPDX-License-Identifier: Apache-2.0
"""Reports while an operation goes on, and after a restart."""

import dataclasses

from nova_dedup_migrate.reports import build
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples as operations
from nova_dedup_migrate.tests.unit.reports import samples


class UnfinishedTest(base.TestCase):

    def test_progress_and_phase(self):
        progress = report.Progress(0.5, 7.0, samples.STARTED)
        operation = operations.make(progress=progress)
        made = build.of_operation(operation)
        self.assertEqual((progress, 'running'), (made.progress, made.phase))
        operation.finish('failed')
        operation.durable.phase = 'rolling back'
        made = build.of_operation(operation)
        self.assertEqual((None, 'rolling back'), (made.progress,
                                                  made.phase))

    def test_an_error_that_nova_has_dealt_with(self):
        operation = operations.make(failure=KeyError('libvirt'))
        self.assertEqual("'libvirt'", build.of_operation(operation).error)
        operation.error = KeyError('Nova')
        self.assertEqual("'Nova'", build.of_operation(operation).error)


class EarlierTest(base.TestCase):
    """What is reported if an earlier process began the operation."""

    def made(self, earlier=None, **given):
        earlier = samples.make(**{
            'outcome': 'running', 'finished_at': None,
            'prediction_error': None, 'phase': 'running',
            'warnings': ('a',), 'progress': report.Progress(0.1, None, 1.0),
            **(earlier or {})})
        operation = operations.make(earlier=earlier, **given)
        return earlier, operation

    def test_it_goes_on(self):
        now = report.Progress(0.9, 1.0, 2.0)
        earlier, operation = self.made(progress=now)
        operation.warn('b', ValueError('c'))
        self.assertEqual(
            dataclasses.replace(earlier, progress=now,
                                warnings=('a', 'b: c')),
            build.of_operation(operation))

    def test_it_ends(self):
        earlier, operation = self.made(phase='ended')
        operation.finish('failed')
        made = build.of_operation(operation)
        self.assertEqual(
            ('failed', 'ended', None),
            (made.outcome, made.phase, made.progress))
        self.assertIsNotNone(made.finished_at)
        self.assertEqual((earlier.plan, earlier.rounds, earlier.link_bytes,
                          earlier.started_at),
                         (made.plan, made.rounds, made.link_bytes,
                          made.started_at))

    def test_its_error_stays(self):
        _, operation = self.made({'error': 'of libvirt'})
        self.assertEqual('of libvirt', build.of_operation(operation).error)
        operation.error = KeyError('new')
        self.assertEqual("'new'", build.of_operation(operation).error)

    def test_its_reason_stays(self):
        _, operation = self.made({'fallback_reason': 'a'})
        self.assertEqual('a', build.of_operation(operation).fallback_reason)
        operation.explain('b')
        self.assertEqual('a', build.of_operation(operation).fallback_reason)
        _, operation = self.made()
        operation.explain('b')
        self.assertEqual('b', build.of_operation(operation).fallback_reason)

    def test_nova_has_chosen_the_destination_since(self):
        _, operation = self.made({'destination': ''})
        self.assertEqual('compute2',
                         build.of_operation(operation).destination)
        _, operation = self.made(destination='')
        self.assertEqual('compute2',
                         build.of_operation(operation).destination)
