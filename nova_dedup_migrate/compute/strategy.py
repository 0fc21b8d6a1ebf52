# SPDX-License-Identifier: Apache-2.0
"""Which strategy holds for an instance, and who said so.

A flavor belongs to the operator, an image to its owner: so the flavor's
extra spec beats the image's property, which beats nova.conf.  A value
that is not known counts as not given: an image may come from anywhere,
and Nova checks extra specs only if the API client asked for it.
"""

from oslo_log import log as logging

from nova_dedup_migrate.planner import facts

LOG = logging.getLogger(__name__)

#: Name of the extra spec and of the image property.
PROPERTY = 'dedup_migrate:strategy'

#: Nova keeps an image's properties in the instance's system metadata.
_SYSTEM_METADATA = 'image_' + PROPERTY


def of_instance(instance, configured):
    """Return (strategy, source); source is flavor, image or nova.conf.

    :param instance: nova.objects.Instance with flavor, system_metadata
    :param configured: the value of nova.conf
    """
    extra_specs = instance.flavor.extra_specs or {}
    given = (('flavor', extra_specs.get(PROPERTY)),
             ('image', instance.system_metadata.get(_SYSTEM_METADATA)))
    for source, value in given:
        if value in facts.STRATEGIES:
            return value, source
        if value is not None:
            LOG.warning('%(source)s property %(name)s=%(value).80r is '
                        'ignored: expected one of %(known)s',
                        {'source': source, 'name': PROPERTY, 'value': value,
                         'known': ', '.join(facts.STRATEGIES)},
                        instance=instance)
    return configured, 'nova.conf'
