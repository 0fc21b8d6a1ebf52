# SPDX-License-Identifier: Apache-2.0
import pathlib

from guests import errors
from guests import programs
from nova_dedup_migrate.tests import base


class ProgramsTest(base.TestCase):

    def test_a_program_comes_with_its_libraries(self):
        found = programs.with_libraries('ls')
        self.assertEqual(programs.installed('ls').read_bytes(),
                         found['/bin/ls'])
        self.assertTrue(any('libc.so' in path for path in found))
        self.assertTrue(any('ld-linux' in path for path in found))
        for path in found.keys() - {'/bin/ls'}:
            self.assertTrue(pathlib.Path(path).is_file())

    def test_a_program_that_is_not_installed(self):
        self.assertRaisesRegex(errors.BuildError, 'no-such-program is not',
                               programs.with_libraries, 'no-such-program')
