# SPDX-License-Identifier: Apache-2.0
"""Migration between two QEMU processes on this machine.

What libvirt does between two hosts, in the same order: the destination
waits with -incoming defer, both sides get the same capabilities, the
destination listens, the source connects.
"""

import time

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import progress
from testkit import options as migration_options
from testkit import polling

_TLS_ID = 'migration-tls'


def begin(source, destination, options):
    """Begin to migrate; see Guest.migrate."""
    try:
        if not destination.is_alive():
            destination.start_incoming()
        state = destination.run_state()
        if state != 'inmigrate':
            raise errors.InvalidMigrationState(
                action='migrate to a guest that is ' + state,
                status='not begun')
        # QEMU remembers these until the migration has arrived
        destination.qmp('stop' if options.paused else 'cont')
        _prepare(destination, options, 'server')
        address = _listen(destination, options)
        _prepare(source, options, 'client')
        armed = _is_armed(source)
        source.qmp('migrate', uri=address)
    except errors.HypervisorError:
        if destination.is_alive() and destination.run_state() == 'inmigrate':
            destination.destroy()
        raise
    return DirectMigration(source, destination, options, armed)


def _prepare(guest, options, endpoint):
    guest.qmp('migrate-set-capabilities',
              capabilities=options.qmp_capabilities())
    tls_id = None
    if options.tls is not None:
        tls_id = _TLS_ID
        try:
            guest.qmp('object-del', id=tls_id)
        except errors.QmpError:
            # the usual case: this guest had none before
            pass
        guest.qmp('object-add', **options.tls.object(tls_id, endpoint))
    guest.qmp('migrate-set-parameters', **options.qmp_parameters(tls_id))


def _listen(destination, options):
    """Make the destination listen, return the URI to connect to."""
    if options.transport != 'tcp':
        uri = 'unix:%s' % destination.migration_socket
        destination.migration_socket.unlink(missing_ok=True)
    else:
        uri = 'tcp:127.0.0.1:%d' % options.port
    try:
        destination.qmp('migrate-incoming', uri=uri)
    except errors.QmpError as error:
        if 'in use' in error.description:
            raise errors.AddressInUse(address=uri) from error
        raise
    return _listening_uri(destination, uri)


def _listening_uri(destination, uri):
    if uri.startswith('unix:'):
        return uri
    # the port was chosen by the kernel if we asked for port 0
    address = destination.qmp('query-migrate')['socket-address'][0]
    return 'tcp:127.0.0.1:%s' % address['port']


def _is_armed(source):
    """Whether the coming migration will have figures of its own."""
    try:
        info = source.dedup_statistics()
    except errors.DedupNotSupported:
        return None
    return info.source is not None and info.source.state == 'armed'


class DirectMigration(polling.PolledMigration):
    """A migration that was begun.

    :param armed: whether dedup is armed; None if QEMU has none
    """

    def __init__(self, source, destination, options, armed):
        super().__init__(source)
        self._destination = destination
        self._options = options
        self._armed = armed
        self._failure = None

    def progress(self):
        try:
            now = self._source.progress(dedup=bool(self._armed))
        except (errors.QmpDisconnected, errors.GuestNotRunning) as error:
            raise errors.MigrationFailed(
                name=self._source.name, status='source lost',
                reason=self._source.last_words() or error) from error
        return self._with_eta(now)

    def _failed(self, now):
        if self._failure is not None:
            return self._failure
        reason = now.error or 'no reason given'
        words = self._destination.last_words()
        if words and now.status != 'cancelled':
            reason += '; destination: ' + words
        return errors.MigrationFailed(name=self._source.name,
                                      status=now.status, reason=reason)

    def _settle(self, now, deadline):
        if now.status == 'completed':
            self._wait_arrival(deadline)
            self._leave(self._source, 'finish-migrate', deadline)
            return
        # QEMU ends by itself when what it receives fails; its log is
        # complete only then
        self._destination.wait_exit(2.0 if now.status == 'failed' else 0.0)
        self._failure = self._failed(now)
        self._destination.destroy()
        self._leave(self._source, 'finish-migrate', deadline)
        if self._armed:
            self._wait_released(deadline)

    def _wait_released(self, deadline):
        """The status is final before QEMU has let go of the records."""
        while self._source.dedup_statistics().source.state in (
                'negotiating', 'active', 'draining'):
            if time.monotonic() > deadline:
                raise errors.WaitTimeout(
                    what='end of the records of %s' % self._source.name,
                    seconds=0)
            time.sleep(0.01)

    @staticmethod
    def _leave(guest, state, deadline):
        """Wait for a run state, which lags behind the status, to end."""
        begun = time.monotonic()
        while guest.run_state() == state:
            if time.monotonic() > deadline:
                raise errors.WaitTimeout(
                    what='end of run state %s of %s' % (state, guest.name),
                    seconds=round(deadline - begun))
            time.sleep(0.01)

    def _wait_arrival(self, deadline):
        """The source is done before the destination has loaded all."""
        begun = time.monotonic()
        while True:
            mark = self._destination.events.mark()
            try:
                status = decode.text(self._destination.qmp(
                    'query-migrate').get('status', 'none'), 'status')
            except (errors.QmpDisconnected, errors.GuestNotRunning):
                status = 'failed'
            if status == 'completed':
                return
            if status == 'failed':
                raise errors.MigrationFailed(
                    name=self._destination.name, status='destination lost',
                    reason=self._destination.last_words())
            if time.monotonic() > deadline:
                raise errors.WaitTimeout(what='arrival of the guest',
                                         seconds=round(deadline - begun))
            try:
                self._destination.events.wait('MIGRATION', mark, 0.05)
            except errors.WaitTimeout:
                continue

    def set_rate(self, bytes_per_second):
        self._source.qmp('migrate-set-parameters', **{
            'max-bandwidth': bytes_per_second
            or migration_options.UNLIMITED})

    def cancel(self, timeout=60.0):
        status = self.progress().status
        if status in progress.POSTCOPY:
            raise errors.InvalidMigrationState(action='cancel',
                                               status=status)
        self._source.qmp('migrate_cancel')
        return self.wait_status(progress.FINAL, timeout)

    def start_postcopy(self, timeout=60.0):
        self.wait_status(('active', *progress.FINAL), timeout)
        deadline = time.monotonic() + timeout
        self._source.qmp('migrate-start-postcopy')
        self.wait_status(('postcopy-active', 'completed'), timeout)
        # The destination survives a broken link only once it has loaded
        # all devices.
        self._leave(self._destination, 'inmigrate', deadline)
        return self.progress()

    def proceed(self):
        self._source.qmp('migrate-continue', state='pre-switchover')

    def interrupt(self, timeout=60.0):
        guests = self._source, self._destination
        marks = [guest.events.mark() for guest in guests]
        self._source.qmp_oob('migrate-pause')
        # The destination's main loop may be waiting for a page: only its
        # events, and commands out of band, still get through.
        self._wait_interrupted(guests, marks, timeout)

    def recover(self, timeout=60.0):
        socket = self._destination.migration_socket
        socket.unlink(missing_ok=True)
        uri = 'unix:%s' % socket
        self._destination.qmp_oob('migrate-recover', uri=uri)
        self._source.qmp('migrate', uri=uri, resume=True)
        return self.wait_status(('postcopy-active', 'completed'), timeout)
