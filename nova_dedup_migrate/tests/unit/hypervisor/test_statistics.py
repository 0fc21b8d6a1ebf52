# SPDX-License-Identifier: Apache-2.0
import copy
import dataclasses
import pathlib
import re

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests import base

SCHEMA = (pathlib.Path(__file__).parents[4]
          / 'qemu' / 'src' / 'qapi' / 'dedup.json')

REPLY = {
    'tracking': True,
    'hints': {'pages': 12, 'memory-bytes': 4096, 'recorded': 20,
              'map-state': 'failed', 'map-pages': 0, 'map-skipped': 0,
              'map-error': 'bad magic'},
    'source': {'state': 'active', 'peer-pages': 1, 'zero-pages': 2,
               'record-pages': 3, 'record-bytes': 72, 'storage-pages': 2,
               'outstanding': 1, 'nack-digest': 0, 'nack-io': 0,
               'resent-pages': 0, 'superseded-pages': 0, 'final-pages': 0,
               'stale-hints': 0, 'unresolved-hints': 0,
               'peer-backlog': 0, 'peer-read-rate': 2 ** 63},
    'incoming': {'active': False, 'record-pages': 3, 'fetched-pages': 3,
                 'superseded-pages': 0, 'nack-digest': 0, 'nack-io': 0,
                 'reads': 2, 'bytes-read': 12288, 'read-ns': 3000000,
                 'max-read-ns': 2000000, 'backlog': 0}}


class DedupStatisticsTest(base.TestCase):

    def test_all_fields(self):
        info = statistics.DedupStatistics.from_qmp(REPLY)
        self.assertTrue(info.tracking)
        self.assertEqual('bad magic', info.hints.map_error)
        self.assertEqual(2 ** 63, info.source.peer_read_rate)
        self.assertIsNone(info.source.reason)
        self.assertEqual(1.5, info.incoming.mean_read_ms)

    def test_parts_that_had_no_role(self):
        info = statistics.DedupStatistics.from_qmp(
            {'tracking': False, 'hints': REPLY['hints']})
        self.assertIsNone(info.source)
        self.assertIsNone(info.incoming)

    def test_nothing_was_read(self):
        self.assertEqual(0.0, statistics.IncomingStatistics().mean_read_ms)

    def test_fields_of_other_versions(self):
        reply = copy.deepcopy(REPLY)
        reply['source']['new-counter'] = {'what': 'ever'}
        reply['new'] = []
        del reply['source']['resent-pages']
        info = statistics.DedupStatistics.from_qmp(reply)
        self.assertEqual(0, info.source.resent_pages)

    def test_hostile_values(self):
        for part, field, value in (
                ('source', 'peer-pages', -1),
                ('source', 'peer-pages', 2 ** 64),
                ('source', 'peer-pages', 1.5),
                ('source', 'peer-pages', True),
                ('source', 'peer-pages', '7'),
                ('source', 'peer-pages', None),
                ('source', 'peer-pages', float('nan')),
                ('source', 'state', 7),
                ('source', 'reason', ['x' * 10000]),
                ('hints', 'map-state', {}),
                ('incoming', 'active', 1),
                ('incoming', 'backlog', [])):
            reply = copy.deepcopy(REPLY)
            reply[part][field] = value
            error = self.assertRaises(
                errors.MalformedReply,
                statistics.DedupStatistics.from_qmp, reply)
            self.assertEqual('%s.%s' % (part, field), error.field)
            self.assertLess(len(str(error)), 300)

    def test_not_even_an_object(self):
        for reply in (None, [], 'x', 1, {'source': []}, {'hints': 'x'},
                      {'tracking': 'yes'}):
            self.assertRaises(errors.MalformedReply,
                              statistics.DedupStatistics.from_qmp, reply)

    def test_text_is_cut_and_cleaned(self):
        reply = copy.deepcopy(REPLY)
        reply['hints']['map-error'] = '\x1b[2J' + 'a' * 10 ** 6
        text = statistics.DedupStatistics.from_qmp(reply).hints.map_error
        self.assertEqual(decode.MAX_TEXT, len(text))
        self.assertTrue(text.startswith('?[2Ja'))

    def test_fields_are_those_of_the_schema(self):
        schema = SCHEMA.read_text()
        for struct, cls in (
                ('DedupHintsInfo', statistics.HintStatistics),
                ('DedupSourceInfo', statistics.SourceStatistics),
                ('DedupIncomingInfo', statistics.IncomingStatistics),
                ('DedupInfo', statistics.DedupStatistics)):
            body = re.search(r"'struct': '%s',\s*'data': \{(.*?)\}" % struct,
                             schema, re.DOTALL).group(1)
            names = set(re.findall(r"'\*?([a-z-]+)':", body))
            ours = {f.name.replace('_', '-')
                    for f in dataclasses.fields(cls)}
            self.assertEqual(names, ours, struct)


    def test_refused_disks(self):
        reply = copy.deepcopy(REPLY)
        reply['incoming']['refused'] = [{'device': 'virtio-disk0',
                                         'reason': 'it is RBD'}]
        self.assertEqual(
            (statistics.RefusedDisk('virtio-disk0', 'it is RBD'),),
            statistics.DedupStatistics.from_qmp(reply).incoming.refused)
        for refused in ('x', [7], [{}] * 65, [{'device': 1}]):
            reply['incoming']['refused'] = refused
            self.assertRaises(errors.MalformedReply,
                              statistics.DedupStatistics.from_qmp, reply)


class DiskHintsTest(base.TestCase):

    GOOD = {'device': 'virtio-disk0', 'hints': 9, 'sampled': 5, 'valid': 4}

    def test_good(self):
        self.assertEqual(
            statistics.DiskHints('virtio-disk0', 9, sampled=5, valid=4),
            statistics.DiskHints.from_qmp({**self.GOOD, 'later': 1}))

    def test_malformed(self):
        for changes in ({'hints': -1}, {'hints': 4}, {'sampled': 3},
                        {'sampled': 2 ** 64}, {'valid': 'x'},
                        {'device': None}, {'device': 5}):
            self.assertRaises(errors.MalformedReply,
                              statistics.DiskHints.from_qmp,
                              {**self.GOOD, **changes})
        for reply in (None, [], 'x'):
            self.assertRaises(errors.MalformedReply,
                              statistics.DiskHints.from_qmp, reply)


class IncomingEventTest(base.TestCase):

    def test_event(self):
        done = statistics.IncomingStatistics.from_event(
            {'info': REPLY['incoming'], 'later': 'more'})
        self.assertEqual(3, done.fetched_pages)

    def test_malformed(self):
        for data in (None, {}, {'info': 1}, {'info': {'reads': -1}}):
            self.assertRaises(errors.MalformedReply,
                              statistics.IncomingStatistics.from_event, data)


class MemorySampleTest(base.TestCase):

    GOOD = {'pages': 4096, 'zero-pages': 1000, 'hinted-pages': 2000,
            'sampled-pages': 1000, 'compressed-bytes': 1000 * 1024}

    def test_ratio(self):
        found = statistics.CompressionSample.from_qmp(
            {**self.GOOD, 'later': 1})
        self.assertEqual(0.25, found.ratio)

    def test_too_few_pages(self):
        found = statistics.CompressionSample.from_qmp(
            {**self.GOOD, 'sampled-pages': 63})
        self.assertIsNone(found.ratio)

    def test_never_more_than_all(self):
        found = statistics.CompressionSample.from_qmp(
            {**self.GOOD, 'compressed-bytes': 1 << 40})
        self.assertEqual(1.0, found.ratio)

    def test_malformed(self):
        for changes in {'zero-pages': 2000}, {'pages': -1}, {'pages': 'x'}:
            self.assertRaises(errors.MalformedReply,
                              statistics.CompressionSample.from_qmp,
                              {**self.GOOD, **changes})


class CompressionRatioTest(base.TestCase):

    def test_ratio(self):
        self.assertEqual(1.0, statistics.SourceStatistics().compression_ratio)
        self.assertEqual(0.5, statistics.SourceStatistics(
            compressed_pages=2, compressed_bytes=4096).compression_ratio)
