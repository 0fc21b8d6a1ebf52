# SPDX-License-Identifier: Apache-2.0
"""Emulated agents of an emulated cloud: hosts, and reports by the clock.

They use the methods of the engine that agents call over the bus.  The plan
of a report is the planner's, its other figures are made up.
"""

import dataclasses
import datetime
import json
import threading
import time

from nova_dedup_migrate.engine import intake
from nova_dedup_migrate.engine import metrics
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report as reports
from nova_dedup_migrate.rpc import objects

_PAGE = 4096
#: Shares of the memory of a guest, by path, in the first round.
_PATHS = {'peer': 0.24, 'storage': 0.56, 'zero': 0.2}
#: Duration of rounds as shares of the migration.
_ROUNDS = (0.55, 0.25, 0.12, 0.08)
#: Bytes per second: of most guests, of large ones, of the link.
_DIRTY, _FAST = 4e5, 4.2e7
_LINK = 1.17e8
_LARGE = 8192
#: Share of a live migration after which it goes on no more, if it is held.
_HELD = 0.65


class Agents:
    """:param cloud: testkit's OpenStack
    :param silent: hosts whose agents report once and never again
    :param stock: hosts whose QEMU takes no part
    """

    def __init__(self, cloud, database, silent=(), stock=()):
        self._cloud = cloud
        self._intake = intake.Intake(database, metrics.Metrics())
        self._silent = silent
        self._stock = stock
        self._revisions = {}
        self._over = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        for host in self._cloud.hosts:
            self._host(host)
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(0.7):
            for host in self._cloud.hosts:
                if host not in self._silent:
                    self._host(host)
            with self._cloud.lock:
                found = [dataclasses.replace(one)
                         for one in self._cloud.migrations
                         if one.kind == 'live-migration'
                         and one.began is not None
                         and one.uuid not in self._over]
            for one in found:
                self._report(one)

    def _host(self, host):
        patched = host not in self._stock
        self._intake.put_host(None, objects.DedupHostReport(
            host=host, release='0.1.0', patched=patched,
            qemu_version='10.0.13' if patched else '9.2.0',
            reason='' if patched
            else 'QEMU has no x-dedup-arm: it is not the patched one',
            max_outbound=2, link_rate=_LINK, waiting_reports=0,
            options=objects.DedupMigrationOptions(
                strategy='auto', downtime_ms=500.0, bandwidth=None,
                post_copy=False, auto_converge=False, timeout_per_gb=800.0,
                force_complete=False),
            guests=[objects.DedupGuestSample(
                uuid=one.id, memory=one.ram << 20, tracked=patched, age=4.0,
                dirty_rate=_DIRTY if one.ram < _LARGE else _FAST,
                disk_write_rate=1e5, in_use=0.8 * (one.ram << 20),
                in_use_error=0.0, hint_pages=int(
                    _PATHS['storage'] * (one.ram << 20) / _PAGE),
                map_pages=0) for one in self._cloud.on(host)
                if one.power_state == 1]))

    def _report(self, one):
        revision = self._revisions[one.uuid] = (
            self._revisions.get(one.uuid, 0) + 1)
        made = make(one, time.time(), self._cloud.held)
        if made.outcome != 'running':
            self._over.add(one.uuid)
        self._intake.put_report(None, objects.DedupReport(
            host=one.source, migration_uuid=one.uuid, revision=revision,
            report=json.dumps(codec.plain(made))))


def make(one, now, held):
    """Return the Report of an emulated migration at a time.

    :param held: whether it does not end
    """
    memory = one.server.ram << 20
    outcome = {'completed': 'completed', 'cancelled': 'cancelled',
               'error': 'failed'}.get(one.status, 'running')
    over = outcome != 'running'
    end = one.updated_at if over else now
    spent = min(max(end - one.began, 0.0), one.server.seconds
                * (_HELD if held and not over else 1))
    share = (1.0 if outcome == 'completed'
             else min(0.99, spent / one.server.seconds))
    rounds = _rounds(memory, one.server.seconds, spent)
    pages = [sum(getattr(each.pages, path) for each in rounds)
             for path in ('peer', 'zero', 'storage')]
    left = int(memory * (1 - share))
    plan = _plan(one)
    return reports.Report(
        migration_uuid=one.uuid, instance_uuid=one.server.id,
        source=one.source, destination=one.destination,
        started_at=_time(one.began),
        finished_at=_time(end) if over else None, outcome=outcome,
        phase='ended' if over else 'running',
        progress=None if over else reports.Progress(
            share, one.server.seconds - spent, now, memory, left, None,
            None),
        error='' if outcome != 'failed'
        else 'the link broke: connection reset by peer',
        strategy_source='nova.conf', strategy_used=plan.strategy,
        plan=plan, rounds=tuple(rounds),
        pages=reports.Paths(*pages),
        bytes=reports.Paths(*(number * _PAGE for number in pages)),
        link_bytes=pages[0] * _PAGE, total_time=spent if over else None,
        downtime_ms=127 if outcome == 'completed' else None)


def _plan(one):
    memory = float(one.server.ram << 20)
    pages = int(_PATHS['storage'] * memory / _PAGE)
    return choose.choose(facts.Facts(
        guest=facts.Guest(
            memory=memory, resident=memory, hint_pages=pages,
            dirty_rate=_DIRTY if one.server.ram < _LARGE else _FAST,
            in_use=0.8 * memory),
        disks=(facts.Disk('virtio-disk0', 'vda', facts.SHARED,
                          hint_pages=pages),),
        source=facts.End(one.source, True),
        destination=facts.End(one.destination, True),
        link=facts.Link(measured=_LINK, sharers=1)))


def _rounds(memory, seconds, spent):
    """Return the rounds until now; the last one may be under way."""
    made, rest = [], spent
    for number, share in enumerate(_ROUNDS, 1):
        lasts = share * seconds
        part = min(1.0, rest / lasts)
        size = memory if number == 1 else memory * 0.04 / number
        pages = {path: int(size * of * part / _PAGE)
                 for path, of in (_PATHS.items() if number == 1
                                  else (('peer', 1.0),))}
        paths = reports.Paths(**pages)
        took = lasts * part
        made.append(reports.Round(
            number, took, paths, paths.peer * _PAGE,
            int(size * (1 - part) + memory * 0.04 / (number + 1)),
            paths.peer * _PAGE / took if took else 0.0, _DIRTY))
        rest -= lasts
        if rest <= 0:
            break
    return made


def _time(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
