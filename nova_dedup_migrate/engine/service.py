# SPDX-License-Identifier: Apache-2.0
"""An engine: threads that do what the database says is to be done.

::

    heartbeat   shows that the engine lives; renews its leases
    drains      takes drains that nobody owns and does their steps
    estimates   makes estimates
    nova        what Nova has of migrations, by one engine at a time
    recheck     whether emptied hosts are still safe, by one engine
    images      sends the list of public images to agents, by one engine
    purge       removes what is old once a day, by one engine
    (RPC)       takes what agents send

Engines know of each other only by their leases.  One that ends in order
frees its own; those of one that was killed expire.
"""

from __future__ import annotations

from collections.abc import Callable
import concurrent.futures
import threading
import time

from oslo_config import cfg
from oslo_log import log as logging
import oslo_messaging as messaging
from oslo_utils import uuidutils
import sqlalchemy as sa

from nova_dedup_migrate import metrics as listener
from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import errors as db_errors
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import leases
from nova_dedup_migrate.db import models
from nova_dedup_migrate.db import purge
from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.engine import conditions
from nova_dedup_migrate.engine import drain as draining
from nova_dedup_migrate.engine import errors
from nova_dedup_migrate.engine import estimator
from nova_dedup_migrate.engine import intake
from nova_dedup_migrate.engine import metrics as engine_metrics
from nova_dedup_migrate.engine import nova_sync
from nova_dedup_migrate.engine import public_images
from nova_dedup_migrate.engine import records as recording
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import transport as rpc_transport

LOG = logging.getLogger(__name__)

BINARY = 'nova-dedup-migrate-engine'
_DAY = 86400.0
#: Seconds for which a drain that has ended is checked again.
_WATCHED = 7 * _DAY
#: Share of the interval that at least lies between two steps of a drain.
_REST = 0.25
#: Drains whose next step is known.
_REMEMBERED = 1000
#: Seconds to the next look at what waits for an engine.
_LOOK = 1.0


class Engine:
    """:param conf: read
    :param database: facade.Database
    :param cloud: engine.cloud.Cloud
    :param host: name of this machine
    :param transport: of rpc.transport.get_transport; None: agents are
        neither listened to nor called
    """

    def __init__(self, conf: cfg.ConfigOpts, database: facade.Database,
                 cloud: clouds.Cloud, host: str, release: str,
                 transport: messaging.RPCTransport | None = None) -> None:
        self.id = uuidutils.generate_uuid()
        self._conf = conf
        self._database = database
        self._cloud = cloud
        self._values = {'id': self.id, 'binary': BINARY, 'host': host,
                        'release': release}
        self._leases = leases.Leases(database, self.id,
                                     conf.engine.lease_time)
        self._held: dict[str, leases.Lease] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._pool = concurrent.futures.ThreadPoolExecutor(
            conf.engine.workers, 'drain')
        self._busy: set[str] = set()
        #: When the next step of a drain is due.
        self._next: dict[str, float] = {}
        self.metrics = engine_metrics.Metrics()
        self.metrics.watch(database, conf.engine.agent_timeout)
        self._estimator = estimator.Estimator(database, cloud, conf)
        self._nova = nova_sync.NovaSync(database, cloud, conf)
        self._server = None
        self._images: public_images.PublicImages | None = None
        if transport is not None:
            self._server = rpc_transport.get_server(
                transport, host + '-' + self.id,
                [intake.Intake(database, self.metrics)],
                rpc_transport.ENGINE_TOPIC)
            self._images = public_images.PublicImages(
                cloud, rpc_api.AgentAPI(transport, public_images.TIMEOUT),
                self._agents, conf.engine.public_images_interval,
                self._stopping.is_set)
        self._stop_metrics: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to work."""
        engine = self._conf.engine
        self._stop_metrics = listener.listen(engine.metrics_listen,
                                             self.metrics.registry)
        self._beat()
        repeated: list[tuple[str, Callable[[], None], float]] = [
            ('heartbeat', self._beat, engine.lease_time / 4),
            ('drains', self._drain, min(_LOOK, _REST * engine.interval)),
            ('estimates', self._estimate, min(_LOOK, engine.interval)),
            ('nova', self._alone('nova', self._nova.sync),
             max(5.0, engine.interval)),
            ('recheck', self._alone('recheck', self._recheck),
             engine.recheck_interval),
            ('purge', self._alone('purge', self._purge), _DAY)]
        if self._images is not None and engine.public_images_interval:
            repeated.append(('images',
                             self._alone('images', self._images.send),
                             engine.public_images_interval))
        for name, work, pause in repeated:
            thread = threading.Thread(target=self._repeat, name=name,
                                      args=(name, work, pause), daemon=True)
            self._threads.append(thread)
            thread.start()
        if self._server is not None:
            # It waits for the bus without end.
            threading.Thread(target=self._server.start, daemon=True,
                             name='rpc').start()
        LOG.info('Engine %(id)s of %(host)s works', self._values)

    def stop(self) -> None:
        """End after the steps under way; other engines continue at once."""
        self._stopping.set()
        if self._server is not None:
            self._server.stop()
        for thread in self._threads:
            thread.join(5)
        self._pool.shutdown(cancel_futures=True)
        with self._lock:
            held = list(self._held.values())
            self._held.clear()
        for lease in held:
            self._leases.release(lease)
        self._stop_metrics()

    def _repeat(self, name: str, work: Callable[[], None], pause: float
                ) -> None:
        while True:
            try:
                work()
            except errors.CloudUnavailable as error:
                LOG.warning('%(error)s. It is tried again in %(pause)g s.',
                            {'error': error, 'pause': pause})
            except db_errors.LeaseLost as error:
                LOG.info('%s', error)
            except Exception:
                LOG.exception('The work "%(name)s" of the engine failed; it '
                              'is tried again in %(pause)g s',
                              {'name': name, 'pause': pause})
            if self._stopping.wait(pause):
                return

    # Leases

    def _beat(self) -> None:
        self._database.retrying(
            lambda session: hosts.beat(session, self._values))
        with self._lock:
            held = list(self._held.values())
        for lease in held:
            if not self._leases.renew(lease) and self._forget(lease):
                LOG.warning('Lease %(name)s is lost; another engine '
                            'continues with it', {'name': lease.name})

    def _hold(self, name: str) -> leases.Lease | None:
        """Return the lease of a name if this engine has it, or gets it."""
        with self._lock:
            lease = self._held.get(name)
        if lease is not None:
            return lease
        lease = self._leases.take(name)
        if lease is not None:
            with self._lock:
                self._held[name] = lease
            if lease.takeover:
                self.metrics.takeovers.inc()
                LOG.warning('%s is continued for an engine that has '
                            'stopped to answer', name)
        return lease

    def _forget(self, lease: leases.Lease) -> bool:
        """Return whether it was held until now."""
        with self._lock:
            if self._held.get(lease.name) != lease:
                return False
            del self._held[lease.name]
            return True

    def _alone(self, name: str, work: Callable[[], None]
               ) -> Callable[[], None]:
        """Return work that only the engine with the lease does."""
        def run() -> None:
            if self._hold(name) is not None:
                work()

        return run

    # Drains

    def _drain(self) -> None:
        """Begin the next step of each drain that is ours, or is free."""
        with self._database.read() as session:
            due = drains.due(session)
        now = time.monotonic()
        for drain_id in sorted(due, key=lambda one: self._next.get(one,
                                                                   0.0)):
            with self._lock:
                if (drain_id in self._busy
                        or self._next.get(drain_id, 0.0) > now
                        or len(self._busy) >= self._conf.engine.workers):
                    continue
            lease = self._hold('drain/' + drain_id)
            if lease is None:
                continue
            with self._lock:
                self._busy.add(drain_id)
            self._pool.submit(self._step, drain_id, lease)

    def _step(self, drain_id: str, lease: leases.Lease) -> None:
        """Do one step of a drain; the others have their turn then."""
        began = time.monotonic()
        records = recording.Records(self._database, lease, drain_id)
        pause = self._conf.engine.interval
        try:
            before = records.read()[0]['state']
            draining.Drain(records, self._cloud, self._conf).step()
            drain = records.read()[0]
            if drain['state'] != before:
                # Nothing outside of us has to happen first.
                pause = 0.0
            if drain['active_host'] is None:
                self._forget(lease)
                self._leases.release(lease)
        except errors.CloudUnavailable as error:
            LOG.warning('Drain %(drain)s waits: %(error)s',
                        {'drain': drain_id, 'error': error})
        except db_errors.LeaseLost as error:
            LOG.warning('%s', error)
            self._forget(lease)
        except Exception:
            LOG.exception('A step of drain %s failed; it is repeated',
                          drain_id)
        finally:
            with self._lock:
                self._busy.discard(drain_id)
                # From its beginning, but a Nova that is slow has a rest.
                self._next[drain_id] = max(
                    began + pause, time.monotonic() + _REST * pause)
                while len(self._next) > _REMEMBERED:
                    del self._next[min(self._next, key=lambda one:
                                       self._next[one])]

    def _estimate(self) -> None:
        while not self._stopping.is_set() and self._estimator.one():
            pass

    # Alone

    def _recheck(self) -> None:
        """Observe again whether hosts that were emptied are safe."""
        table = models.drains
        now = self._database.now()
        with self._database.read() as session:
            newest = session.execute(
                sa.select(table.c.host, sa.func.max(table.c.key)).where(
                    table.c.finished_at > now - _WATCHED,
                    table.c.dry_run.is_(False)).group_by(table.c.host)
            ).all()
            rows = [session.execute(sa.select(table).where(
                table.c.key == key)).mappings().one()
                for _, key in newest]
        for row in rows:
            if row['active_host'] is not None or row['state'] not in (
                    drains.DRAINED, drains.PARTIAL):
                continue
            with self._database.read() as session:
                host = session.execute(sa.select(models.hosts).where(
                    models.hosts.c.name == row['host'])
                ).mappings().one_or_none()
            found = conditions.check(
                self._cloud, row['host'],
                None if host is None else dict(host), now,
                self._conf.engine.agent_timeout)
            self._store_conditions(row['key'], found)

    def _store_conditions(self, key: int, found: list[dict[str, object]]
                          ) -> None:
        table = models.drains
        self._database.retrying(lambda session: session.execute(
            sa.update(table).where(table.c.key == key,
                                   table.c.active_host.is_(None))
            .values(conditions=found,
                    safe_to_power_off=conditions.safe(found))))

    def _agents(self) -> list[str]:
        """Return the hosts whose agents are up."""
        with self._database.read() as session:
            return hosts.alive(session, self._conf.engine.agent_timeout)

    def _purge(self) -> None:
        options = self._conf.engine
        removed = purge.purge(self._database, options.report_days,
                              options.summary_days)
        LOG.info('Removed what is old: %s', removed)
