# SPDX-License-Identifier: Apache-2.0

from pathlib import Path
import tempfile
import unittest
from unittest import mock

from debtool import host
from debtool import kolla


class StepsTest(unittest.TestCase):

    def test_libvirt(self):
        command, = kolla.steps('nova_libvirt_footer', 'file:/repo')
        self.assertIn('deb [trusted=yes] file:/repo ./', command)
        self.assertIn('apt-get install', command)
        self.assertNotIn('example.org', command)

    def steps(self, text):
        with tempfile.NamedTemporaryFile('w', suffix='.j2') as file:
            file.write(text)
            file.flush()
            with mock.patch.object(kolla, 'OVERRIDES', Path(file.name)):
                return kolla.steps('footer', 'file:/repo')

    def test_each_run_is_one(self):
        self.assertEqual(['a file:/repo', 'b'], self.steps(
            "{% extends parent_template %}"
            "{% set dedup_migrate_repository = 'http://x' %}"
            "{% block footer %}\nRUN a \\\n    {{ dedup_migrate_repository }}"
            "\nRUN b\n{% endblock %}"))

    def test_nothing_or_something_else(self):
        for text in ("{% set dedup_migrate_repository = 'http://x' %}"
                     '{% block footer %}RUN a\nENV b=c{% endblock %}',
                     "{% set dedup_migrate_repository = 'http://x' %}",
                     '{% block footer %}RUN a{% endblock %}'):
            self.assertRaises(host.CheckFailed, self.steps,
                              '{% extends parent_template %}' + text)
