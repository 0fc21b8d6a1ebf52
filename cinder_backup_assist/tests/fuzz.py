# SPDX-License-Identifier: Apache-2.0
"""Fuzzes what parses files of the backup store, and requests.

``python -m cinder_backup_assist.tests.fuzz --rounds N`` feeds each parser
N inputs, made of good ones by damaging them.  A parser may return
something plausible or raise its own error.  testkit/fuzzing.py runs them.
"""

import bz2
import hashlib
import io
import json
import sys
import zlib

import zstandard

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain
from cinder_backup_assist.blockmap import metadata as backup_metadata
from cinder_backup_assist.blockmap import objects as backup_objects
from nova_dedup_migrate.backups import frames
from testkit import fuzzing

_PREFIX = 'volume_v_20260101000000_backup_b'
_WORDS = (b'-1', b'9223372036854775808', b'1e999', b'true', b'null', b'"',
          b'[', b'{', b'}', b']', b',', b':', b'\\', b'\xff', b'../',
          b'"offset"', b'"objects"', b'"sha256s"', b'NaN', b'0' * 64)


def pieces(text, size):
    """Return a function that reads text in pieces of size() bytes."""
    file = io.BytesIO(text)
    return lambda limit: file.read(min(limit, size()))


def damage(chance, text):
    """Return text with some of its bytes changed."""
    text = bytearray(text)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(text) + 1)
        kind = chance.randrange(6)
        if kind == 0:
            del text[at:at + chance.randrange(1, 20)]
        elif kind == 1:
            text[at:at] = chance.choice(_WORDS)
        elif kind == 2:
            text[at:at + chance.randrange(1, 9)] = chance.choice(_WORDS)
        elif kind == 3:
            text[at:at + 1] = bytes([chance.randrange(256)])
        elif kind == 4:
            other = chance.randrange(len(text) + 1)
            text[at:at] = text[other:other + chance.randrange(60)]
        else:
            del text[at:]
    return bytes(text)


def _entries(chance):
    at, found = 0, []
    for number in range(1, chance.randrange(1, 6)):
        length = chance.randrange(1, 5) * 32768
        found.append({backup_metadata.object_name(_PREFIX, number): {
            'offset': at, 'length': length, 'md5': 'x',
            'compression': chance.choice(('none', 'zlib', 'bz2', 'zstd'))}})
        at += length
    return found


def metadata(chance, rounds):
    """Fuzz the metadata of a backup."""
    for _ in range(rounds):
        text = damage(chance, json.dumps({
            'version': '1.0.0', 'backup_id': 'b', 'volume_id': 'v',
            'parent_id': chance.choice((None, 'p')), 'volume_meta': '{}',
            'objects': _entries(chance)}, sort_keys=True, indent=2).encode())
        try:
            found = backup_metadata.read_metadata(
                pieces(text, lambda: chance.randrange(1, 400)), _PREFIX)
        except errors.MalformedBackup:
            continue
        rows = found.objects
        ends = rows['offset'] + rows['length']
        assert (rows['offset'] >= 0).all() and (rows['length'] > 0).all()
        assert (ends <= backup_metadata.MAX_VOLUME).all()
        assert (ends[:-1] <= rows['offset'][1:]).all()


def digests(chance, rounds):
    """Fuzz the list of SHA-256."""
    for _ in range(rounds):
        text = damage(chance, json.dumps({
            'version': '1.0.0', 'backup_id': 'b', 'volume_id': 'v',
            'chunk_size': 32768, 'sha256s': [
                hashlib.sha256(chance.randbytes(4)).hexdigest()
                for _ in range(chance.randrange(20))]},
            sort_keys=True, indent=2).encode())
        file = io.BytesIO()
        try:
            found = backup_metadata.read_digests(
                pieces(text, lambda: chance.randrange(1, 400)), _PREFIX,
                file)
        except errors.MalformedBackup:
            continue
        assert found.count * 32 == len(file.getvalue())


_COMPRESS = {'none': bytes, 'zlib': zlib.compress, 'bz2': bz2.compress,
             'zstd': zstandard.ZstdCompressor().compress}


def objects(chance, rounds):
    """Fuzz the streams of objects."""
    for _ in range(rounds):
        kind = chance.choice(backup_metadata.COMPRESSIONS)
        content = chance.choice((chance.randbytes, bytes))(
            chance.randrange(1, 200000))
        text = damage(chance, _COMPRESS[kind](content))
        length = chance.choice((len(content), 2 * len(content)))
        reader = backup_objects.ObjectReader(
            chain.ChainObject(0, 'o', 0, length, kind), io.BytesIO(text))
        try:
            while reader.position < length:
                left = length - reader.position
                if chance.randrange(3) == 0:
                    reader.skip_to(reader.position
                                   + chance.randrange(left + 1))
                else:
                    size = min(left, chance.randrange(1, 70000))
                    assert len(reader.read(size)) == size
        except errors.DamagedObject:
            continue


def requests(chance, rounds):
    """Fuzz extents of requests and frames of answers."""
    for _ in range(rounds):
        unit = chance.choice((512, 32768))
        size = chance.randrange(1, 40 * unit)
        at, extents = 0, []
        while at < size:
            length = min(size - at, chance.randrange(1, 5) * unit)
            if chance.randrange(2):
                extents.append((at, length))
            at += length
        try:
            found = frames.parse_extents(
                damage(chance, frames.pack_extents(extents)), size, unit)
            assert all(first + count <= -(-size // unit) and count > 0
                       for first, count in found)
        except frames.Malformed:
            pass
        answer = b''.join(
            frames.pack(frames.DATA, at, length) + bytes(length)
            if chance.randrange(2) else
            frames.pack(frames.MISSING, at, length)
            for at, length in extents) + frames.pack(frames.END)
        try:
            for frame in frames.parse(
                    io.BytesIO(damage(chance, answer)).read, size, unit):
                assert 0 < frame.length <= size - frame.offset
        except frames.Malformed:
            pass


PARSERS = {'metadata': metadata, 'digests': digests, 'objects': objects,
           'requests': requests}


if __name__ == '__main__':
    sys.exit(fuzzing.main('fuzz-backups', __doc__.split('\n')[0], PARSERS))
