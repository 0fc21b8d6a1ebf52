# SPDX-License-Identifier: Apache-2.0
"""Migrations: pages, filters, and who sees what."""

import dataclasses
import datetime
import uuid

import sqlalchemy as sa

from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.db import models
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report as reports
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.reports import samples

#: What a hostile user calls his server.
NAME = '<script>alert(1)</script>\u202e" onload=x {{7*7}} \U0001f600'


class _TestCase(controller.ApiTestCase):

    def put(self, uuid=samples.MIGRATION, project='blue', revision=1,
            name=NAME, **fields):
        """Store the report of a migration."""
        made = samples.make(uuid, **fields)
        with self.database.write() as session:
            migrations.put(session, summary.of_report(made, revision),
                           codec.encode(made))
            migrations.note(
                session, {'uuid': made.migration_uuid},
                {'project_id': project, 'server_name': name})
        return made

    def uuids(self, query='', token=controller.ADMIN):
        """Return the UUIDs of all pages of a list."""
        path, found = '/v1/migrations?limit=2' + query, []
        while path:
            page = self.call('GET', path, token=token, status=200).json
            found += [one['uuid'] for one in page['migrations']]
            links = page.get('migrations_links')
            path = (links[0]['href'].removeprefix('http://localhost')
                    if links else None)
        return found

    def put_many(self, number, **fields):
        """Store some; return their UUIDs, the oldest first."""
        made = [str(uuid.UUID(int=one + 1)) for one in range(number)]
        for one in made:
            self.put(one, **fields)
        return made


class ListTest(_TestCase):

    def test_pages(self):
        made = self.put_many(5)
        self.assertEqual(made[::-1], self.uuids())

    def test_marker_of_other_clients(self):
        made = self.put_many(3)
        for more in ('', '&changes-since=2026-01-01T00:00:00Z'):
            found = self.call('GET', '/v1/migrations?limit=2&marker=%s%s'
                              % (made[1], more)).json['migrations']
            self.assertEqual([made[2 if more else 0]],
                             [one['uuid'] for one in found])
        self.call('GET', '/v1/migrations?marker=' + samples.INSTANCE,
                  status=400)

    def test_filters(self):
        made = self.put_many(3)
        other = str(uuid.UUID(int=77))
        self.put(other, source='compute3', destination='compute4',
                 outcome='failed', instance_uuid=other, project='red')
        self.assertEqual([other], self.uuids('&state=failed'))
        self.assertEqual([other], self.uuids('&host=compute4'))
        self.assertEqual([other], self.uuids('&host=compute3'))
        self.assertEqual(made[::-1], self.uuids('&host=compute2'))
        self.assertEqual([other], self.uuids('&server=' + other))
        self.assertEqual([other], self.uuids('&project=red'))
        self.assertEqual([], self.uuids('&drain=' + other))

    def test_host_of_both_ends_pages(self):
        made = []
        for number in range(7):
            one = str(uuid.UUID(int=number + 1))
            ends = ('a', 'b') if number % 2 else ('b', 'a')
            self.put(one, source=ends[0], destination=ends[1])
            made.append(one)
        self.assertEqual(made[::-1], self.uuids('&host=a'))

    def test_changes_since(self):
        made = self.put_many(5)
        with self.database.write() as session:
            for number, one in enumerate(made):
                session.execute(sa.update(models.migrations).where(
                    models.migrations.c.uuid == one).values(
                        updated_at=1e9 + (number // 2)))
        since = '&changes-since=' + datetime.datetime.fromtimestamp(
            1e9 + 1, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
        self.assertEqual(made[2:], self.uuids(since))
        self.call('GET', '/v1/migrations?changes-since=soon', status=400)


class ReportTest(_TestCase):

    def show(self, token=controller.ADMIN, status=200, more=''):
        return self.call(
            'GET', '/v1/migrations/%s%s' % (samples.MIGRATION, more),
            token=token, status=status).json

    def test_older_revisions_change_nothing(self):
        self.put(revision=5)
        self.put(revision=5, outcome='failed')
        self.put(revision=4, outcome='failed')
        self.assertEqual('completed', self.show()['migration']['state'])
        self.put(revision=6, outcome='failed')
        self.assertEqual('failed', self.show()['migration']['state'])

    def test_report_and_rounds(self):
        made = self.put()
        found = self.show(more='/report')['report']
        self.assertEqual(codec.plain(made)['plan'], found['plan'])
        self.assertEqual(1, self.show(more='/rounds')['rounds'][0]['number'])

    def test_purged_report(self):
        self.put()
        with self.database.write() as session:
            session.execute(sa.delete(models.reports))
        self.show()
        self.show(status=404, more='/report')

    def test_running(self):
        made = self.put(outcome='running', phase='running',
                        finished_at=None, progress=reports.Progress(
                            0.5, 20.0, 1.0, 100, 40, 1000, 250),
                        prediction_error=None)
        found = self.show()['migration']
        self.assertEqual({'total': 100, 'done': 60, 'remaining': 40},
                         found['progress']['memory'])
        self.assertEqual(750, found['progress']['disk']['done'])
        self.assertEqual({'low': 10.0, 'likely': 20.0, 'high': None},
                         found['eta'])
        self.assertIn('left to send', found['waiting_for'])
        last = dataclasses.replace(made.rounds[-1], dirty_rate=1e7)
        self.put(outcome='running', phase='running', finished_at=None,
                 rounds=(last,), revision=2)
        self.assertIn('the guest writes',
                      self.show()['migration']['waiting_for'])

    def test_nova_knows_it_first(self):
        values = {
            'uuid': samples.MIGRATION, 'server_id': samples.INSTANCE,
            'source': 'compute1', 'destination': '', 'state': 'running',
            'phase': 'queued', 'strategy': '', 'started_at': 1.0,
            'finished_at': None, 'revision': 0,
            'summary': summary.of_nova('running')}
        with self.database.write() as session:
            migrations.note(session, values, {'project_id': 'blue'})
        self.assertIn('no report', self.show()['migration']['waiting_for'])
        self.show(status=404, more='/report')
        self.put()
        with self.database.write() as session:
            migrations.note(session, {**values, 'state': 'failed'},
                            {'project_id': 'blue'})
        self.assertEqual('completed', self.show()['migration']['state'])


class VisibilityTest(_TestCase):

    def test_hostile_name_is_data(self):
        self.put()
        response = self.call('GET', '/v1/migrations', status=200)
        self.assertEqual('application/json', response.content_type)
        self.assertEqual(NAME, response.json['migrations'][0]['server_name'])

    def test_reader_of_the_project(self):
        self.put(error='no route to compute2', outcome='failed')
        found = self.call('GET', '/v1/migrations/' + samples.MIGRATION,
                          token=controller.READER, status=200)
        self.assertNotIn('compute', found.text)
        self.assertNotIn('compute', self.call(
            'GET', '/v1/migrations', token=controller.READER).text)
        self.call('GET', '/v1/migrations/%s/rounds' % samples.MIGRATION,
                  token=controller.READER, status=200)
        self.call('GET', '/v1/migrations/%s/report' % samples.MIGRATION,
                  token=controller.READER, status=403)
        self.call('GET', '/v1/migrations?host=compute1',
                  token=controller.READER, status=403)

    def test_others_see_nothing(self):
        self.put()
        self.assertEqual([], self.uuids(token=controller.STRANGER))
        for more in ('', '/rounds'):
            shown = self.call(
                'GET', '/v1/migrations/%s%s' % (samples.MIGRATION, more),
                token=controller.STRANGER, status=404).json
            missing = self.call(
                'GET', '/v1/migrations/%s%s' % (samples.INSTANCE, more),
                token=controller.STRANGER, status=404).json
            self.assertEqual(
                missing['errors'][0]['detail'],
                shown['errors'][0]['detail'].replace(samples.MIGRATION,
                                                     samples.INSTANCE))
        self.call('GET', '/v1/migrations?project=blue',
                  token=controller.STRANGER, status=403)

    def test_project_that_is_not_known_yet(self):
        self.put(project=None)
        self.assertEqual([], self.uuids(token=controller.READER))
        self.assertEqual(1, len(self.uuids()))
