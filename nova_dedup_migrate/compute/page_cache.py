# SPDX-License-Identifier: Apache-2.0
"""How instances are asked what they cache."""

from nova.virt.libvirt import config as vconfig
from oslo_log import log as logging
from oslo_utils import strutils

from nova_dedup_migrate.pagecache import guestagent
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.pagecache import port
from nova_dedup_migrate.pagecache import transport

LOG = logging.getLogger(__name__)

#: Image property: whether an instance gets a port for its lister.
PROPERTY = 'dedup_migrate:page_cache_port'

#: Nova keeps an image's properties in the instance's system metadata.
_SYSTEM_METADATA = 'image_' + PROPERTY
_SOCKET = '/var/lib/libvirt/qemu/page-cache.%s.sock'


def loader(conf, guest):
    """Return pagecache.loader.PageCacheLoader, None if guests are not asked.

    :param conf: the options [dedup_migrate]
    :param guest: hypervisor.base.Guest
    """
    known = {'port': port.PortTransport(guest),
             'agent': guestagent.AgentTransport(guest,
                                                conf.page_cache_lister)}
    transports = [known[name] for name in
                  dict.fromkeys(conf.page_cache_transports)]
    if not transports:
        return None
    return loading.PageCacheLoader(guest, transports, transport.Limits(
        seconds=conf.page_cache_time,
        memory_kib=conf.page_cache_memory * 1024,
        extents=conf.page_cache_extents))


def add_port(guest, instance):
    """Add the port to the configuration of an instance that wants it.

    No instance is kept from starting by it.

    :param guest: nova.virt.libvirt.config.LibvirtConfigGuest
    :param instance: nova.objects.Instance
    """
    try:
        wanted = wants_port(instance)
    except Exception as error:
        LOG.warning('It is not known whether the instance is to have a '
                    'port for its page cache: %s', error, instance=instance)
        return
    if not wanted:
        return
    made = vconfig.LibvirtConfigGuestChannel()
    made.type = 'unix'
    made.target_name = port.PORT
    # beside the socket that Nova makes for qemu-guest-agent
    made.source_path = _SOCKET % instance.name
    guest.add_device(made)


def wants_port(instance):
    """Whether the image of an instance asks for the port.

    An image may come from anywhere: what is no boolean counts as no.
    """
    value = instance.system_metadata.get(_SYSTEM_METADATA)
    if value is None:
        return False
    try:
        return strutils.bool_from_string(value, strict=True)
    except ValueError:
        LOG.warning('Image property %(name)s=%(value).80r is ignored: '
                    'expected true or false',
                    {'name': PROPERTY, 'value': value}, instance=instance)
        return False
