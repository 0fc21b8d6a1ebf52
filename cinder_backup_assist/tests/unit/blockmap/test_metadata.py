# SPDX-License-Identifier: Apache-2.0
"""Metadata that is not as Cinder writes it."""

import hashlib
import io
import json
import random
import unittest

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import jsonstream
from cinder_backup_assist.blockmap import metadata
from cinder_backup_assist.tests import fuzz

PREFIX = 'volume_v_20260101000000_backup_b'


def entry(number=1, offset=0, length=65536, compression='none', name=None):
    return {name or metadata.object_name(PREFIX, number): {
        'offset': offset, 'length': length, 'compression': compression,
        'md5': 'd41d8cd98f00b204e9800998ecf8427e'}}


def header(**members):
    return {'version': '1.0.0', 'backup_id': 'b', 'volume_id': 'v',
            'parent_id': None, 'volume_meta': None, **members}


def parse(value):
    text = value if isinstance(value, bytes) else json.dumps(
        value, sort_keys=True, indent=2).encode()
    return metadata.read_metadata(io.BytesIO(text).read, PREFIX)


def parse_digests(value, file=None):
    text = value if isinstance(value, bytes) else json.dumps(
        value, sort_keys=True, indent=2).encode()
    return metadata.read_digests(io.BytesIO(text).read, PREFIX,
                                 file or io.BytesIO())


class MetadataTest(unittest.TestCase):

    def refused(self, pattern, value, parse=parse):
        with self.assertRaisesRegex(errors.MalformedBackup, pattern):
            parse(value)

    def test_objects_come_by_offset(self):
        found = parse(header(objects=[
            entry(2, 65536, compression='gzip'), entry(1),
            entry(3, 131072, 100)]))
        self.assertEqual([0, 65536, 131072],
                         found.objects['offset'].tolist())
        self.assertEqual([1, 2, 3], found.objects['number'].tolist())
        self.assertEqual(131172, found.end)

    def test_numbers_that_are_none(self):
        for name in ('offset', 'length'):
            for value in (-1, 2 ** 63, 2 ** 64, 10 ** 400, 1.5, True, None,
                          '7', [], {}, 1e308):
                one = entry()
                one[metadata.object_name(PREFIX, 1)][name] = value
                self.refused('has offset', header(objects=[one]))
        self.refused('has offset', header(objects=[entry(length=0)]))
        self.refused('has offset', header(
            objects=[entry(offset=metadata.MAX_VOLUME - 1, length=2)]))

    def test_integers_too_long_to_convert(self):
        text = json.dumps(header(objects=[entry(offset=77)])).replace(
            '77', '7' * 5000)
        self.refused('no JSON', text.encode())

    def test_constants_that_are_no_json(self):
        for word in ('NaN', 'Infinity', '-Infinity'):
            text = json.dumps(header(objects=[entry(offset=77)])).replace(
                '77', word)
            self.refused('no number', text.encode())

    def test_overlapping_objects(self):
        self.refused('two objects', header(
            objects=[entry(1), entry(2, 65535)]))

    def test_an_object_twice(self):
        self.refused('twice', header(objects=[entry(1), entry(1, 65536)]))

    def test_names_that_lead_elsewhere(self):
        for name in ('../../etc/shadow', '/etc/shadow', PREFIX + '-1',
                     PREFIX + '-00001/..', PREFIX + '-0000x',
                     PREFIX + '_metadata', PREFIX + '-00001\n',
                     PREFIX + '-000001', PREFIX + '-٠٠٠٠١', ''):
            self.refused('named', header(objects=[entry(
                name=name or ' ')]))

    def test_unknown_compressions(self):
        for value in ('lzma', None, 1, ['zlib'], ''):
            self.refused('compression', header(
                objects=[entry(compression=value)]))

    def test_unknown_versions(self):
        for value in ('2.0.0', 1, None, [], 'x' * 10000):
            self.refused('version', header(objects=[], version=value))

    def test_members_missing_or_twice(self):
        for name in ('version', 'backup_id', 'volume_id', 'objects'):
            value = header(objects=[entry()])
            del value[name]
            self.refused('lacks ' + name, value)
        text = json.dumps(header(objects=[entry()]))
        self.refused('twice', (text[:-1] + ', "objects": []}').encode())

    def test_texts_that_are_no_object(self):
        for text in (b'', b'[]', b'{', b'{"a"', b'{"a":', b'{"a": 1',
                     b'{"a": 1,}', b'{1: 2}', b'{} {}', b'\xff', b'{"a" 1}',
                     b'{"objects": [' + b'[' * 100000,
                     b'{"objects": 5}', b'{"objects": [{}]}',
                     b'{"objects": [{"a": 1, "b": 2}]}',
                     b'{"objects": [1,]}'):
            self.refused('.', text)

    def test_a_value_without_end_is_not_kept(self):
        read = []

        def source(size):
            read.append(size)
            return b'{"volume_meta": "' if len(read) == 1 else b'x' * size

        with self.assertRaisesRegex(errors.MalformedBackup, 'longer than'):
            metadata.read_metadata(source, PREFIX)
        self.assertLess(sum(read), 4 * jsonstream.PIECE)

    def test_blanks_without_end_are_not_kept(self):
        limit = 100 << 20
        stream = jsonstream.JsonStream(lambda size: b' ' * size, limit)
        with self.assertRaisesRegex(jsonstream.Malformed, 'longer than'):
            list(stream.members())

    def test_a_text_in_any_pieces(self):
        text = json.dumps(header(objects=[entry(1), entry(2, 65536)],
                                 volume_meta='ä\\"{[' * 50),
                          ensure_ascii=False, indent=1).encode()
        for size in (1, 2, 3, 7, 100):
            found = metadata.read_metadata(
                fuzz.Pieces(text, size).read, PREFIX)
            self.assertEqual(2, len(found.objects))


class DigestsTest(MetadataTest.__base__):

    refused = MetadataTest.refused

    def value(self, digests, **members):
        return {'version': '1.0.0', 'backup_id': 'b', 'volume_id': 'v',
                'chunk_size': 32768, 'sha256s': digests, **members}

    def test_digests_are_written_in_order(self):
        for count in (0, 1, 2, 5000):
            digests = [hashlib.sha256(b'%d' % number).hexdigest()
                       for number in range(count)]
            file = io.BytesIO()
            found = parse_digests(self.value(digests), file)
            self.assertEqual(count, found.count)
            self.assertEqual(bytes.fromhex(''.join(digests)),
                             file.getvalue())

    def test_a_list_in_any_pieces(self):
        digests = [hashlib.sha256(b'%d' % number).hexdigest()
                   for number in range(40)]
        text = json.dumps(self.value(digests), sort_keys=True).encode()
        for size in (1, 5, 63, 64, 65, 1000):
            file = io.BytesIO()
            metadata.read_digests(
                fuzz.Pieces(text, size).read, PREFIX, file)
            self.assertEqual(bytes.fromhex(''.join(digests)),
                             file.getvalue())

    def test_what_is_no_digest(self):
        good = hashlib.sha256(b'').hexdigest()
        for value in (good[:-1], good + '0', good.upper(), 5, None, '',
                      [good], ' ' + good):
            self.refused('no SHA-256', self.value([good, value]),
                         parse_digests)
            self.refused('no SHA-256', self.value([value, good]),
                         parse_digests)
        text = json.dumps(self.value([good]), sort_keys=True)
        self.refused('.', text.replace(good + '"', good + '",').encode(),
                     parse_digests)

    def test_units_that_are_none(self):
        for value in (0, -1, 1, 511, 513, 2 ** 63, True, None, '32768',
                      1e400):
            self.refused('.', self.value([], chunk_size=value),
                         parse_digests)

    def test_more_digests_than_a_volume_has_units(self):
        unit = metadata.MAX_UNIT
        file = io.BytesIO()
        file.write = lambda some: None
        text = json.dumps(self.value([], chunk_size=unit),
                          sort_keys=True).encode()
        start, _, end = text.partition(b'[]')
        one = b'"' + b'0' * 64 + b'",'

        def endless():
            yield start + b'['
            while True:
                yield one * 3000

        parts = endless()
        with self.assertRaisesRegex(errors.MalformedBackup, 'more than'):
            metadata.read_digests(lambda size: next(parts), PREFIX, file)


class FuzzTest(unittest.TestCase):
    """A short run of cinder_backup_assist.tests.fuzz."""

    def test_only_the_errors_of_parsers_are_raised(self):
        for name, fuzzer in fuzz.PARSERS.items():
            with self.subTest(name):
                fuzzer(random.Random(1), 400)
