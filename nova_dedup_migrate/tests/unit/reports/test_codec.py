# SPDX-License-Identifier: Apache-2.0
import json
import math

from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples


class CodecTest(base.TestCase):

    def test_there_and_back(self):
        for report in (samples.make(),
                       samples.make(plan=None, finished_at=None, rounds=(),
                                    link_bytes=None, total_time=None,
                                    dedup_source=None, dedup_incoming=None,
                                    prediction_error=None)):
            self.assertEqual(report, codec.decode(codec.encode(report)))

    def test_format(self):
        plain = codec.plain(samples.make())
        self.assertEqual(1, plain['version'])
        self.assertEqual('2027-01-15T08:00:00+00:00', plain['started_at'])
        self.assertEqual({'low': 5.0, 'likely': 10.0, 'high': None},
                         plain['plan']['prediction']['time'])
        self.assertEqual({'peer': 9, 'zero': 8, 'storage': 7},
                         plain['rounds'][0]['pages'])

    def test_infinity_comes_back(self):
        report = codec.decode(codec.encode(samples.make()))
        self.assertEqual(math.inf, report.plan.prediction.time.high)

    def test_unknown_fields_are_dropped(self):
        plain = codec.plain(samples.make())
        plain['colour'] = plain['rounds'][0]['colour'] = 'red'
        self.assertEqual(samples.make(),
                         codec.decode(json.dumps(plain).encode()))

    def test_missing_fields_have_defaults(self):
        plain = codec.plain(samples.make())
        del plain['warnings']
        self.assertEqual(samples.make(),
                         codec.decode(json.dumps(plain).encode()))

    def test_damaged(self):
        for data in (b'', b'{', b'[]', b'null', b'{}', b'\xff\xfe',
                     b'[' * 100000, b'{"version": 2}', b'{"version": "1"}'):
            self.assertRaises(ValueError, codec.decode, data)

    def test_wrong_values(self):
        for name, value, part in (
                ('plan', 3, 'report.plan'),
                ('outcome', [], 'report.outcome'),
                ('started_at', 'noon', 'report.started_at'),
                ('started_at', None, 'report.started_at'),
                ('rounds', [{'number': 'x'}], 'report.rounds[0].number'),
                ('rounds', 5, 'report.rounds'),
                ('migration_uuid', 5, 'report.migration_uuid'),
                ('plan', {'strategy': 'stock', 'stock': {},
                          'prediction': {'bytes': {'low': 'x'}}},
                 'report.plan.prediction'),
                ('dedup_source', {'a': [1]}, 'report.dedup_source'),
                ('version', 99, 'report version 99')):
            plain = codec.plain(samples.make())
            plain[name] = value
            error = self.assertRaises(ValueError, codec.decode,
                                      json.dumps(plain).encode())
            self.assertIn(part, str(error))

    def test_missing_value(self):
        plain = codec.plain(samples.make())
        del plain['source']
        error = self.assertRaises(ValueError, codec.decode,
                                  json.dumps(plain).encode())
        self.assertIn('report.source', str(error))

    def test_no_constants(self):
        data = codec.encode(samples.make()).replace(b'11.0', b'NaN')
        self.assertRaises(ValueError, codec.decode, data)
