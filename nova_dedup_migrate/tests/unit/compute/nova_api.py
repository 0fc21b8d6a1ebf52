# SPDX-License-Identifier: Apache-2.0
"""What of Nova's private API we override or call, and reading it.

Nova's source is parsed, not imported: so releases that are not installed
can be looked at as well.  tools/nova-signatures keeps signatures.json.
"""

import ast
import json
import pathlib

RECORDED = pathlib.Path(__file__).with_name('signatures.json')

#: Methods of LibvirtDriver that the driver overrides.
OVERRIDDEN = ('__init__', 'init_host', 'cleanup_host', 'emit_event',
              '_live_migration', '_live_migration_operation',
              '_live_migration_monitor', 'live_migration_abort',
              'live_migration_force_complete',
              'process_instances_at_startup', '_set_qemu_guest_agent')

#: What is overridden or called only from a major release of Nova on: the
#: first is new there, and what it leads to calls the others.
SINCE = {'process_instances_at_startup': 34, '_live_migration_uri': 34,
         '_delete_allocation_after_move': 34, 'attachment_get': 34}

#: Of them, what not every release's LibvirtDriver has itself.
_INHERITED = ('cleanup_host',)

_DRIVER = 'nova/virt/libvirt/driver.py'
_BASE = 'nova/virt/driver.py'
#: file -> class -> methods
USED = {
    _BASE: {'ComputeDriver': _INHERITED},
    _DRIVER: {'LibvirtDriver': tuple(set(OVERRIDDEN) - set(_INHERITED)) + (
        'list_instance_uuids', '_live_migration_copy_disk_paths',
        '_live_migration_data_gb', '_get_migration_flags',
        '_is_post_copy_enabled', '_get_volume_config',
        '_live_migration_uri')},
    'nova/virt/libvirt/host.py': {'Host': ('get_guest', 'get_connection')},
    'nova/virt/libvirt/guest.py': {'Guest': ('get_job_info', 'abort_job')},
    'nova/virt/event.py': {'InstanceEvent': ('get_instance_uuid',),
                           'LifecycleEvent': ('get_transition',)},
    'nova/objects/migrate_data.py': {
        'LibvirtLiveMigrateBDMInfo': ('connection_info', 'as_disk_info')},
    # post_method and recover_method of _live_migration
    'nova/compute/manager.py': {'ComputeManager': (
        '_post_live_migration_update_host', '_rollback_live_migration',
        '_delete_allocation_after_move')},
    'nova/volume/cinder.py': {'API': ('attachment_get',)},
}


def signatures(root):
    """Return {'file:class.method': 'a, b=1'} of what we use.

    :param root: Path of the folder that holds the package nova
    """
    found = {}
    for file, classes in USED.items():
        tree = ast.parse((root / file).read_text(), file)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in classes:
                for method in node.body:
                    if (isinstance(method, ast.FunctionDef)
                            and method.name in classes[node.name]):
                        # of a property the getter comes first
                        found.setdefault(
                            '%s:%s.%s' % (file, node.name, method.name),
                            _arguments(method.args))
    return found


def used(release):
    """Return the names signatures() should find.

    :param release: e.g. 34.0.0
    """
    return {'%s:%s.%s' % (file, name, method)
            for file, classes in USED.items()
            for name, methods in classes.items()
            for method in methods if is_in(release, method)}


def is_in(release, method):
    """Whether we override or call a method of a release."""
    return int(release.split('.')[0]) >= SINCE.get(method, 0)


def overridden(release, recorded):
    """Return {method: arguments} of what we override, of one release."""
    return {method: recorded[
                '%s:ComputeDriver.%s' % (_BASE, method)
                if method in _INHERITED
                else '%s:LibvirtDriver.%s' % (_DRIVER, method)]
            for method in OVERRIDDEN if is_in(release, method)}


def load():
    """Return {release: {name: arguments}}."""
    return json.loads(RECORDED.read_text())


def _arguments(arguments):
    """Return arguments as in the source, without annotations."""
    for argument in (arguments.posonlyargs + arguments.args
                     + arguments.kwonlyargs
                     + [arguments.vararg, arguments.kwarg]):
        if argument is not None:
            argument.annotation = None
    return ast.unparse(arguments)
