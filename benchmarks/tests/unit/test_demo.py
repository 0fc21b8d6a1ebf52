# SPDX-License-Identifier: Apache-2.0
import json
from pathlib import Path
import tempfile

import testtools

from benchmarks import demo


class TestHowCompiled(testtools.TestCase):

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = Path(scratch.name)

    def binary(self, name, **facts):
        place = self.top / name
        (place / 'bin').mkdir(parents=True)
        if facts:
            (place / 'build.json').write_text(json.dumps(facts))
        return place / 'bin' / 'qemu-system-x86_64'

    def facts(self, **changes):
        return {'version': '10.0.13', 'source': 'dsc:1',
                'options': ['--extra-cflags=-O1'], **changes}

    def test_alike(self):
        said = demo.how_compiled({
            self.binary('one', ours=None, **self.facts()),
            self.binary('two', ours='1', **self.facts())})
        self.assertIn('the same options, -O1', said)

    def test_complete(self):
        said = demo.how_compiled({
            self.binary('one', **self.facts(options=['--enable-kvm']))})
        self.assertIn('-O2', said)

    def test_different(self):
        for number, changes in enumerate((
                {'source': 'dsc:2'}, {'options': []},
                {'version': '10.0.9'})):
            said = demo.how_compiled({
                self.binary(f'one{number}', **self.facts()),
                self.binary(f'two{number}', **self.facts(**changes))})
            self.assertIn('different', said)

    def test_of_somebody_else(self):
        said = demo.how_compiled({
            self.binary('one', **self.facts()), self.binary('two')})
        self.assertIn('not compiled by qemu/build', said)
