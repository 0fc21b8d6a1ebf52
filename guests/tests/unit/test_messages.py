# SPDX-License-Identifier: Apache-2.0
import json

from guests import messages
from guests.synthetic import report
from nova_dedup_migrate.tests import base

LINE = (b'{"type":"report","seq":3,"mode":"read","passes":7,'
        b'"verified":1775697920,"errors":0,"written":0,"mono_ms":11176,'
        b'"gap_ms":5.3,"max_gap_ms":10.7}')


class ParseLineTest(base.TestCase):

    def test_report(self):
        parsed = report.GuestReport.from_message(messages.parse_line(LINE))
        self.assertEqual(3, parsed.seq)
        self.assertEqual('read', parsed.mode)
        self.assertEqual(5.3, parsed.gap_ms)
        self.assertIsNone(parsed.error)

    def test_hostile_lines_are_dropped(self):
        for line in (
                b'', b'null', b'[]', b'{', b'\xff\xfe', b'{"type":"x"}',
                b'{"type":[]}', b'{"type":"beat","seq":[1]}',
                b'{"type":"beat","seq":{"a":1}}', b'{"type":"beat","a":null}',
                b'{"type":"beat","seq":-1}', b'{"type":"beat","seq":1e400}',
                b'{"type":"beat","seq":NaN}', b'{"type":"beat","seq":'
                + b'9' * 4000 + b'}', b'{"a":' + b'[' * 4000,
                b'{"type":"fatal","message":"\\u001b[2J"}',
                b'{"type":"fatal","message":"' + b'x' * 301 + b'"}',
                b'{"type":"beat"}' + b' ' * messages.LINE_LIMIT):
            self.assertIsNone(messages.parse_line(line), line[:60])

    def test_report_with_wrong_types(self):
        good = json.loads(LINE)
        for field, value in (('seq', 'x'), ('seq', 1.5), ('mode', 3),
                             ('error', 5), ('gap_ms', 'late')):
            self.assertIsNone(
                report.GuestReport.from_message({**good, field: value}))


class LineParserTest(base.TestCase):

    def test_any_cutting_gives_the_same(self):
        data = LINE + b'\r\nnoise\n' + LINE + b'\n'
        for size in (1, 7, 100, len(data)):
            parser = messages.LineParser()
            found = []
            for at in range(0, len(data), size):
                found += parser.feed(data[at:at + size])
            self.assertEqual(2, len(found))

    def test_rest_of_an_interrupted_line_is_dropped(self):
        parser = messages.LineParser()
        found = parser.feed(LINE[20:] + b'\n' + LINE + b'\n')
        self.assertEqual([3], [m['seq'] for m in found])

    def test_endless_line_takes_no_memory(self):
        parser = messages.LineParser()
        for _ in range(100):
            self.assertEqual([], parser.feed(b'x' * 4096))
        self.assertLessEqual(len(parser._rest), 2 * messages.LINE_LIMIT)
        # what ends the line is a part of it
        self.assertEqual([], parser.feed(LINE + b'\n'))
        self.assertEqual(1, len(parser.feed(LINE + b'\n')))
