# SPDX-License-Identifier: Apache-2.0
"""Fuzzes the data channel: frames, tickets, requests.

fuzz_storage runs it, with what else reads outside input for disks.
"""

import struct
import types

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary as canaries
from nova_dedup_migrate.storage.channel import errors as channel_errors
from nova_dedup_migrate.storage.channel import frames as forms
from nova_dedup_migrate.storage.channel import server
from nova_dedup_migrate.storage.channel import services
from nova_dedup_migrate.storage.channel import tickets as issuing
from testkit import fuzzing

NUMBERS = (0, 1, 8, 63, 64, 65, 1024, 1025, 32768, 32769, (1 << 31) - 1,
           1 << 40, 1 << 44, (1 << 44) + 1, (1 << 63) - 1, 1 << 63,
           (1 << 64) - 1)
WORDS = tuple(struct.pack('>Q', number) for number in NUMBERS) + tuple(
    struct.pack('>I', number & 0xffffffff) for number in NUMBERS)
_LIFETIME = issuing.LIFETIME


def reader(data):
    """Return read(length), as parsers take it, of data."""
    at = 0

    def read(length):
        nonlocal at
        found = data[at:at + length]
        at += length
        return found

    return read


def _blocks(chance, count):
    return [blocks.Block(
        chance.randbytes(blocks.DIGEST), chance.randrange(1 << 30) * 512,
        chance.choice((512, blocks.BLOCK))) for _ in range(count)]


def _bits(chance, size):
    found = bitmap.Bitmap(size)
    for _ in range(chance.randrange(4)):
        first = chance.randrange(size)
        found.set(first, chance.randrange(size - first) + 1)
    return found


def frames(chance, rounds):
    """Fuzz frames, and what is in them, from either side."""
    good = []
    for _ in range(4):
        some = _blocks(chance, chance.choice((1, 2, 5)))
        bits = _bits(chance, chance.choice((1, 8, 77)))
        good += [
            (forms.HAVE, forms.pack_blocks(some)),
            (forms.READ, forms.pack_blocks(some)),
            (forms.MANIFEST, forms.pack_bitmap(bits)),
            (forms.PROVEN, forms.pack_proven(bits, canaries.choose(
                bits, 32768))),
            (forms.WRITTEN, b''),
            (forms.OK, forms.pack_content(
                [None, chance.randbytes(9), chance.randbytes(700)])),
            (forms.FAILED, b'because')]
    for _ in range(rounds):
        kind, payload = chance.choice(good)
        if chance.randrange(2):
            data = forms.frame(kind, fuzzing.damage(chance, payload, WORDS)
                               [:forms.LIMITS[kind]])
        else:
            data = fuzzing.damage(chance, forms.frame(kind, payload), WORDS)
        requests = chance.randrange(2)
        try:
            kind, payload = forms.read(_exact(data), (
                forms.REQUESTS if requests else (forms.OK, forms.FAILED)))
            assert (kind < 16) == bool(requests)
            assert len(payload) <= forms.LIMITS[kind]
            _unpack(kind, payload)
        except channel_errors.ChannelBroken:
            continue


def _exact(data):
    """Return receive(length) as a connection's, which ends with data."""
    read = reader(data)

    def receive(length):
        found = read(length)
        if len(found) != length:
            raise channel_errors.ChannelBroken(reason='the end')
        return found

    return receive


def _unpack(kind, payload):
    """Take a payload to pieces; those make the same payload again."""
    if kind in (forms.HAVE, forms.READ):
        some = forms.unpack_blocks(payload)
        assert len(some) <= 64
        assert all(0 < one.length <= blocks.BLOCK
                   and 0 <= one.offset <= blocks.MAX_SIZE for one in some)
        assert forms.pack_blocks(some) == payload
    elif kind == forms.MANIFEST:
        assert forms.pack_bitmap(forms.unpack_bitmap(payload)) == payload
    elif kind == forms.PROVEN:
        assert forms.pack_proven(*forms.unpack_proven(payload)) == payload
    elif kind == forms.OK:
        content = forms.unpack_content(payload, 3)
        assert len(content) == 3 and b'' not in content
        assert all(one is None or len(one) <= blocks.BLOCK
                   for one in content)
        assert forms.pack_content(content) == payload


class _Peer:
    """A TLS connection from a client; in place of an SSLSocket."""

    def __init__(self, data, hosts):
        self._data = data
        self._at = 0
        self._hosts = hosts
        self.sent = b''

    def recv_into(self, view):
        some = self._data[self._at:self._at + len(view)]
        view[:len(some)] = some
        self._at += len(some)
        return len(some)

    def getpeercert(self):
        return {'subjectAltName': [('DNS', host) for host in self._hosts]}

    def sendall(self, data):
        self.sent += data

    def settimeout(self, seconds):
        pass


class _Counting(services.Service):
    """A service that notes that it was reached, and has a disk of 77."""

    def __init__(self):
        self.reached = 0
        self._disk = services.DiskService(
            77 * blocks.BLOCK, lambda ranges: iter((b'm' * len(ranges),)),
            None, lambda proven, canary: None,
            lambda: bitmap.Bitmap(77))

    def answer(self, kind, payload):
        self.reached += 1
        return self._disk.answer(kind, payload)


def tickets(chance, rounds):
    """Fuzz tickets and the requests that follow, as the server reads them.

    A ticket is taken if it is what was issued, byte for byte, is for a host
    of the certificate, is not too old, and was not taken before.
    """
    now = [0.0]
    issued = issuing.Tickets(lambda: now[0])
    limited = types.SimpleNamespace(tickets=issued, _limit=lambda size: None,
                                    _fail=server.Server._fail)
    #: ticket -> (host, service, when it was issued)
    known = {}
    for _ in range(rounds):
        if len(known) < 4:
            host = chance.choice(('one', 'Two'))
            service = _Counting()
            known[issued.issue(host, 'm%d' % chance.randrange(3), service)
                  ] = host, service, now[0]
        ticket = chance.choice(tuple(known))
        now[0] += chance.choice((0.0, 0.0, 0.0, 1.0, 25.0))
        hello = forms.MAGIC + ticket
        if chance.randrange(2):
            hello = fuzzing.damage(chance, hello, WORDS)
        rest = forms.frame(*chance.choice(_REQUESTS))
        if chance.randrange(2):
            rest = fuzzing.damage(chance, rest, WORDS)
        names = chance.choice((('one',), ('two',), ('one', 'two'), ()))
        _connect(limited, known, hello + rest, names, now[0])


_REQUESTS = (
    (forms.WRITTEN, b''), (forms.HAVE, b''),
    (forms.MANIFEST, forms.pack_bitmap(bitmap.Bitmap(77))),
    (forms.PROVEN, forms.pack_proven(
        bitmap.Bitmap(77), canaries.Canary(0, bytes(canaries.LENGTH)))))


def _connect(limited, known, data, names, now):
    """Serve a peer, compare whether it was let in."""
    peer = _Peer(data, names)
    hello = data[:len(forms.MAGIC) + forms.TICKET]
    shown = hello[len(forms.MAGIC):]
    # Who shows it, right or wrong, has used it.
    host, service, when = (
        known.pop(shown, (None, None, 0.0))
        if hello.startswith(forms.MAGIC) and len(shown) == forms.TICKET
        else (None, None, 0.0))
    good = host is not None and host.lower() in names and (
        when + _LIFETIME > now)
    try:
        server.Server._serve(limited, peer)
    except channel_errors.ChannelError:
        pass
    first = forms.HEADER.pack(0, forms.OK)
    assert peer.sent.startswith(first) == good
    if not good:
        assert service is None or not service.reached


PARSERS = {'frames': frames, 'tickets': tickets}
