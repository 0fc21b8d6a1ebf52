# SPDX-License-Identifier: Apache-2.0
import sqlalchemy as sa

from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import leases
from nova_dedup_migrate.db import models
from nova_dedup_migrate.tests import controller


class LeasesTest(controller.ControllerTestCase):

    def setUp(self):
        super().setUp()
        self.one = leases.Leases(self.database, 'one')
        self.two = leases.Leases(self.database, 'two')

    def expire(self, name='work'):
        with self.database.write() as session:
            session.execute(sa.update(models.leases).where(
                models.leases.c.name == name).values(expires_at=1.0))

    def write(self, lease, left=0.0):
        with self.database.write() as session:
            lease.fence(session, left)

    def test_one_owner(self):
        lease = self.one.take('work')
        self.assertFalse(lease.takeover)
        self.assertIsNone(self.two.take('work'))
        self.assertTrue(self.one.renew(lease))
        self.write(lease)

    def test_release(self):
        self.one.release(self.one.take('work'))
        lease = self.two.take('work')
        self.assertEqual((2, False), (lease.generation, lease.takeover))

    def test_takeover_fences_the_former_owner(self):
        old = self.one.take('work')
        self.expire()
        new = self.two.take('work')
        self.assertTrue(new.takeover)
        self.assertRaises(errors.LeaseLost, self.write, old)
        self.assertFalse(self.one.renew(old))
        self.one.release(old)
        self.write(new)

    def test_the_same_owner_again_is_another_generation(self):
        old = self.one.take('work')
        self.expire()
        new = self.one.take('work')
        self.assertRaises(errors.LeaseLost, self.write, old)
        self.write(new)

    def test_an_expired_lease_writes_nothing(self):
        lease = self.one.take('work')
        self.expire()
        self.assertRaises(errors.LeaseLost, self.write, lease)
        self.assertFalse(self.one.renew(lease))

    def test_time_left(self):
        lease = self.one.take('work')
        self.write(lease, 30.0)
        self.assertRaises(errors.LeaseLost, self.write, lease, 61.0)

    def test_nothing_is_written_without_it(self):
        lease = self.one.take('work')
        self.expire()

        def work():
            with self.database.write() as session:
                session.execute(sa.insert(models.claims).values(
                    host='h', slot=0, drain_id='d', server_id='s',
                    claimed_at=1.0))
                lease.fence(session)

        self.assertRaises(errors.LeaseLost, work)
        with self.database.read() as session:
            self.assertEqual([], session.execute(
                sa.select(models.claims)).all())
