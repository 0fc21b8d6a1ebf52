# SPDX-License-Identifier: Apache-2.0
from nova import exception
from nova import objects

from nova_dedup_migrate.compute import extra_specs
from nova_dedup_migrate.compute import strategy
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.tests import base


def instance(flavor=None, image=None, name='strategy'):
    extra, metadata = {}, {'image_os_distro': 'debian'}
    if flavor is not None:
        extra['dedup_migrate:%s' % name] = flavor
    if image is not None:
        metadata['image_dedup_migrate:%s' % name] = image
    return objects.Instance(flavor=objects.Flavor(extra_specs=extra),
                            system_metadata=metadata)


class StrategyTest(base.TestCase):

    def check(self, expected, **given):
        self.assertEqual(expected, strategy.of_instance(
            instance(**given), 'auto'))

    def test_configured(self):
        self.check(('auto', 'nova.conf'))

    def test_image_beats_configured(self):
        self.check(('off', 'image'), image='off')

    def test_flavor_beats_image(self):
        self.check(('shared_nas', 'flavor'), flavor='shared_nas',
                   image='off')

    def test_nonsense_counts_as_not_given(self):
        self.check(('off', 'image'), flavor='everything', image='off')
        self.check(('auto', 'nova.conf'), image='x' * 10000)


class CompressionTest(base.TestCase):

    def check(self, expected, **given):
        self.assertEqual(expected, strategy.compression_of(
            instance(name='compression', **given), 'auto'))

    def test_precedence(self):
        self.check(('auto', 'nova.conf'))
        self.check(('off', 'image'), image='off')
        self.check(('zstd', 'flavor'), flavor='zstd', image='off')
        self.check(('off', 'image'), flavor='gzip', image='off')

    def test_not_the_strategy(self):
        self.assertEqual(('auto', 'nova.conf'), strategy.of_instance(
            instance(name='compression', flavor='off'), 'auto'))


class ExtraSpecTest(base.TestCase):

    def setUp(self):
        super().setUp()
        (self.validator, self.compression,
         self.content_index) = extra_specs.register()

    def test_name(self):
        self.assertEqual('dedup_migrate:strategy', self.validator.name)
        self.assertEqual('dedup_migrate:compression', self.compression.name)
        self.assertEqual('dedup_migrate:content_index',
                         self.content_index.name)

    def test_content_index(self):
        for name in facts.CONTENT_INDEXES:
            self.content_index.validate('dedup_migrate:content_index', name)
        self.assertRaises(exception.ValidationError,
                          self.content_index.validate,
                          'dedup_migrate:content_index', 'yes')

    def test_compression(self):
        for name in facts.COMPRESSIONS:
            self.compression.validate('dedup_migrate:compression', name)
        self.assertRaises(exception.ValidationError,
                          self.compression.validate,
                          'dedup_migrate:compression', 'lz4')

    def test_known(self):
        for name in facts.STRATEGIES:
            self.validator.validate('dedup_migrate:strategy', name)

    def test_unknown(self):
        self.assertRaises(exception.ValidationError, self.validator.validate,
                          'dedup_migrate:strategy', 'fast')
