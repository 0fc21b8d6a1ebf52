# SPDX-License-Identifier: Apache-2.0
"""Fuzzes what parses files of the backup store, requests and answers.

``python -m cinder_backup_assist.tests.fuzz --rounds N`` feeds each parser
N inputs, made of good ones by damaging them.  A parser may return
something plausible or raise its own error.  testkit/fuzzing.py runs them.
"""

import bz2
import hashlib
import io
import json
import ssl
import sys
import zlib

import zstandard

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain
from cinder_backup_assist.blockmap import metadata as backup_metadata
from cinder_backup_assist.blockmap import objects as backup_objects
from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import errors as client_errors
from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.backups import objects as messages
from testkit import fuzzing

_PREFIX = 'volume_v_20260101000000_backup_b'
_WORDS = (b'-1', b'9223372036854775808', b'1e999', b'true', b'null', b'"',
          b'[', b'{', b'}', b']', b',', b':', b'\\', b'\xff', b'../',
          b'"offset"', b'"objects"', b'"sha256s"', b'NaN', b'0' * 64)
_NUMBERS = tuple(number.to_bytes(8, 'big') for number in (
    0, 1, 511, 512, 32768, 1 << 24, (1 << 24) + 1, 1 << 46, 1 << 63,
    (1 << 64) - 1))
_UNIT = 512
#: Good inputs that are made for each thousand damaged ones.
_GOOD = 16


class Pieces(io.BytesIO):
    """Bytes that are read in pieces of at most some length."""

    def __init__(self, data, most):
        super().__init__(data)
        self._most = most

    def read(self, size=-1):
        return super().read(self._most if size < 0
                            else min(size, self._most))


def _pieces(chance, data):
    """Return a file that is read whole, or in pieces."""
    return Pieces(data, int(chance.random() ** 4 * 2000) + 1
                  if chance.random() < 0.3 else 1 << 20)


def _text(value):
    return json.dumps(value, sort_keys=True, indent=2).encode()


def _header(**members):
    return {'version': '1.0.0', 'backup_id': 'b', 'volume_id': 'v', **members}


def _entries(chance, prefix=_PREFIX, unit=32768, whole=True):
    """Return objects as in metadata.

    :param whole: without gaps between them
    """
    at, found = 0, []
    for number in range(1, chance.randrange(2, 6)):
        length = chance.randrange(1, 5) * unit
        if not whole:
            at += chance.randrange(3) * unit
        found.append({backup_metadata.object_name(prefix, number): {
            'offset': at, 'length': length, 'md5': 'x',
            'compression': chance.choice(('none', 'zlib', 'bz2', 'zstd'))}})
        at += length
    return found


def _digests(chance, count):
    return [hashlib.sha256(chance.randbytes(4)).hexdigest()
            for _ in range(count)]


def metadata(chance, rounds):
    """Fuzz the metadata of a backup."""
    good = [_text(_header(parent_id=chance.choice((None, 'p')),
                          volume_meta='{}', objects=_entries(chance)))
            for _ in range(_GOOD)]
    for _ in range(rounds):
        text = fuzzing.damage(chance, chance.choice(good), _WORDS)
        try:
            found = backup_metadata.read_metadata(
                _pieces(chance, text).read, _PREFIX)
        except errors.MalformedBackup:
            continue
        _check_objects(found.objects)


def _check_objects(rows):
    end = 0
    for offset, length, _number, kind in rows.tolist():
        assert end <= offset and length > 0
        assert kind < len(backup_metadata.COMPRESSIONS)
        end = offset + length
    assert end <= backup_metadata.MAX_VOLUME


def digests(chance, rounds):
    """Fuzz the list of SHA-256."""
    good = [_text(_header(chunk_size=32768, sha256s=_digests(
        chance, chance.randrange(20)))) for _ in range(_GOOD)]
    for _ in range(rounds):
        text = fuzzing.damage(chance, chance.choice(good), _WORDS)
        file = io.BytesIO()
        try:
            found = backup_metadata.read_digests(
                _pieces(chance, text).read, _PREFIX, file)
        except errors.MalformedBackup:
            continue
        assert found.count * 32 == len(file.getvalue())


class _Opened:
    """What a Layer opens: a file of a backup."""

    def __init__(self, file):
        self._file = file

    def __enter__(self):
        return self._file

    def __exit__(self, *_):
        self._file.close()


def _chain(chance):
    """Return the names and the texts of a chain, the full one's first."""
    names, texts, end = [], {}, 0
    for depth in range(chance.randrange(1, 4)):
        prefix = 'p%d' % depth
        entries = _entries(chance, prefix, _UNIT, whole=not depth)
        if depth:
            # An increment has what is in the volume.
            entries = [one for one in entries
                       for place in one.values()
                       if place['offset'] + place['length'] <= end]
        else:
            end = sum(place['length'] for one in entries
                      for place in one.values())
        names.append(prefix)
        texts[prefix + '_metadata'] = _text(dict(
            _header(objects=entries), backup_id=prefix,
            parent_id=names[-2] if depth else None))
    texts[prefix + '_sha256file'] = _text(dict(
        _header(chunk_size=_UNIT, sha256s=_digests(chance, end // _UNIT)),
        backup_id=prefix))
    return names, texts


def chains(chance, rounds):
    """Fuzz what joins the metadata of a chain to one map."""
    good = [_chain(chance) for _ in range(_GOOD)]
    for _ in range(rounds):
        names, texts = chance.choice(good)
        texts = dict(texts)
        harmed = chance.choice(list(texts))
        texts[harmed] = fuzzing.damage(chance, texts[harmed], _WORDS)
        layers = [chain.Layer(
            name, 'v', parent, name,
            lambda one, texts=texts: _Opened(io.BytesIO(texts[one])))
            for name, parent in zip(names, [None, *names], strict=False)]
        try:
            blocks = chain.join(layers[::-1])
        except (errors.MalformedBackup, errors.MalformedChain):
            continue
        with blocks:
            _check_chain(blocks, names, texts)


def _check_chain(blocks, names, texts):
    """Compare a map with one that is made object by object."""
    owners = {}
    for number, name in enumerate(names):
        rows = backup_metadata.read_metadata(
            io.BytesIO(texts[name + '_metadata']).read, name).objects
        _check_objects(rows)
        for offset, length, *_ in rows.tolist():
            for unit in range(offset // blocks.unit, min(
                    -(-(offset + length) // blocks.unit), blocks.units)):
                owners[unit] = number, offset
    found = {}
    for run in blocks.runs([(0, blocks.units)]):
        entry = blocks.object(run.owner)
        assert (entry.offset <= run.start * blocks.unit
                and (run.start + run.count - 1) * blocks.unit
                < entry.offset + entry.length)
        for unit in range(run.start, run.start + run.count):
            found[unit] = entry.layer, entry.offset
    # None of the digests is that of zeros.
    assert found == owners, (found, owners)
    assert (blocks.units - 1) * blocks.unit < blocks.length
    assert sum(map(len, blocks.manifest())) == 32 * blocks.units


_COMPRESS = {'none': bytes, 'zlib': zlib.compress, 'bz2': bz2.compress,
             'zstd': zstandard.ZstdCompressor().compress}


def objects(chance, rounds):
    """Fuzz the streams of objects."""
    good = []
    for kind in backup_metadata.COMPRESSIONS:
        for make in (chance.randbytes, bytes, _repeated):
            content = make(chance.randrange(1, 3000))
            good.append((kind, content, _COMPRESS[kind](content)))
    some = chance.random
    for _ in range(rounds):
        kind, content, text = chance.choice(good)
        damaged = fuzzing.damage(chance, text, _NUMBERS)
        length = len(content) << (some() < 0.3)
        reader = backup_objects.ObjectReader(
            chain.ChainObject(0, 'o', 0, length, kind),
            _pieces(chance, damaged))
        try:
            while reader.position < length:
                at, left = reader.position, length - reader.position
                if some() < 0.3:
                    reader.skip_to(at + int(some() * (left + 1)))
                    continue
                data = reader.read(min(left, int(some() * 2000) + 1))
                assert len(data) == reader.position - at
                if damaged == text and kind != 'none':
                    assert data == content[at:at + len(data)]
        except errors.DamagedObject:
            continue


def _repeated(size):
    return (b'compressible ' * (size // 13 + 1))[:size]


def _wanted(chance):
    """Return (bytes of a volume, extents of it)."""
    size = chance.randrange(1, 40 * _UNIT)
    at, found = 0, []
    while at < size:
        length = min(size - at, chance.randrange(1, 5) * _UNIT)
        if chance.randrange(2):
            found.append((at, length))
        at += length
    return size, found


def requests(chance, rounds):
    """Fuzz extents of requests."""
    good = [_wanted(chance) for _ in range(_GOOD)]
    good = [(size, frames.pack_extents(extents)) for size, extents in good]
    for _ in range(rounds):
        size, body = chance.choice(good)
        try:
            found = frames.parse_extents(
                fuzzing.damage(chance, body, _NUMBERS), size, _UNIT)
        except frames.Malformed:
            continue
        end = 0
        for first, count in found:
            assert end <= first and count > 0
            end = first + count
        assert end <= -(-size // _UNIT)


def _answer(chance, extents):
    return b''.join(
        frames.pack(frames.DATA, at, length) + _repeated(length)
        if chance.randrange(2) else
        frames.pack(frames.MISSING, at, length)
        for at, length in extents) + frames.pack(frames.END)


def _check_frames(found, size):
    left = size
    for frame in found:
        assert 0 < frame.length <= size - frame.offset
        assert len(frame.data) == frame.length * (frame.kind == frames.DATA)
        left -= frame.length
    assert left >= 0


def answers(chance, rounds):
    """Fuzz frames of answers."""
    good = [_wanted(chance) for _ in range(_GOOD)]
    good = [(size, _answer(chance, extents)) for size, extents in good]
    for _ in range(rounds):
        size, body = chance.choice(good)
        try:
            _check_frames(frames.parse(io.BytesIO(fuzzing.damage(
                chance, body, _NUMBERS)).read, size, _UNIT), size)
        except frames.Malformed:
            continue


class _Server:
    """What http.client takes for a socket, and sends nothing to."""

    def __init__(self, file):
        self._file = file

    def makefile(self, mode):
        return self._file

    def sendall(self, data):
        """Nobody reads it."""

    def close(self):
        """There is nothing to close."""


def _http(body, chance):
    """Return an answer of the daemon."""
    head = (b'HTTP/1.1 200 OK\r\n%s\r\n'
            b'Content-Encoding: zstd\r\n' % chance.choice((
                b'Transfer-Encoding: chunked',
                b'Content-Length: %d' % len(body))))
    if b'chunked' not in head:
        return head + b'\r\n' + body
    half = len(body) // 2
    return head + b'\r\n' + b''.join(
        b'%x\r\n%b\r\n' % (len(part), part)
        for part in (body[:half], body[half:]) if part) + b'0\r\n\r\n'


def streams(chance, rounds):
    """Fuzz compressed streams, as the client reads them by HTTP."""
    compress = zstandard.ZstdCompressor(level=1).compress
    good = [_wanted(chance) for _ in range(_GOOD)]
    good = [(size, extents, compress(_answer(chance, extents)))
            for size, extents in good if extents]
    good = [(*one, _http(one[-1], chance)) for one in good]
    ticket = messages.DedupBackupTicket(
        ticket='1' * 64, lifetime=1.0, url='https://daemon:1')
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for _ in range(rounds):
        size, extents, body, whole = chance.choice(good)
        if chance.random() < 0.5:
            whole = _http(fuzzing.damage(chance, body, _NUMBERS), chance)
        else:
            whole = fuzzing.damage(chance, whole, _NUMBERS)
        client = connection.Connection('daemon', ticket, context)
        client.size, client.unit = size, _UNIT
        client._http.sock = _Server(io.BytesIO(whole))
        client._http.auto_open = 0
        try:
            _check_frames(client.stream(extents), size)
        except client_errors.BackupError:
            continue
        finally:
            client.close()


PARSERS = {'metadata': metadata, 'digests': digests, 'chains': chains,
           'objects': objects, 'requests': requests, 'answers': answers,
           'streams': streams}


if __name__ == '__main__':
    sys.exit(fuzzing.main('fuzz-backups', __doc__.split('\n')[0], PARSERS))
