# SPDX-License-Identifier: Apache-2.0
"""Which strategy and the like hold for an instance, and who said so.

A flavor belongs to the operator, an image to its owner: so the flavor's
extra spec beats the image's property, which beats nova.conf.  A value
that is not known counts as not given: an image may come from anywhere,
and Nova checks extra specs only if the API client asked for it.
"""

from oslo_log import log as logging

from nova_dedup_migrate.planner import facts

LOG = logging.getLogger(__name__)

#: Names of the extra specs and of the image properties.
PROPERTY = 'dedup_migrate:strategy'
COMPRESSION = 'dedup_migrate:compression'
CONTENT_INDEX = 'dedup_migrate:content_index'

#: Nova keeps an image's properties in the instance's system metadata.
_SYSTEM_METADATA = 'image_%s'


def of_instance(instance, configured):
    """Return (strategy, source); source is flavor, image or nova.conf.

    :param instance: nova.objects.Instance with flavor, system_metadata
    :param configured: the value of nova.conf
    """
    return _find(instance, PROPERTY, facts.STRATEGIES, configured)


def compression_of(instance, configured):
    """Return (compression, source), as of_instance."""
    return _find(instance, COMPRESSION, facts.COMPRESSIONS, configured)


def content_index_of(instance, configured):
    """Return (one of facts.CONTENT_INDEXES, source), as of_instance."""
    return _find(instance, CONTENT_INDEX, facts.CONTENT_INDEXES, configured)


def _find(instance, name, known, configured):
    extra_specs = instance.flavor.extra_specs or {}
    given = (('flavor', extra_specs.get(name)),
             ('image', instance.system_metadata.get(
                 _SYSTEM_METADATA % name)))
    for source, value in given:
        if value in known:
            return value, source
        if value is not None:
            LOG.warning('%(source)s property %(name)s=%(value).80r is '
                        'ignored: expected one of %(known)s',
                        {'source': source, 'name': name, 'value': value,
                         'known': ', '.join(known)},
                        instance=instance)
    return configured, 'nova.conf'
