# SPDX-License-Identifier: Apache-2.0
"""What of Nova's private API we override or call, and reading it.

Nova's source is parsed, not imported: so releases that are not installed
can be looked at as well.  tools/nova-signatures keeps signatures.json.
"""

import ast
import json
import pathlib

RECORDED = pathlib.Path(__file__).with_name('signatures.json')
#: Our sources that may import Nova.
_OURS = pathlib.Path(__file__).parents[3] / 'compute'

#: Methods of LibvirtDriver that the driver overrides.
OVERRIDDEN = ('__init__', 'init_host', 'cleanup_host', 'emit_event',
              '_live_migration', '_live_migration_operation',
              '_live_migration_monitor', 'live_migration_abort',
              'live_migration_force_complete',
              'process_instances_at_startup', '_set_qemu_guest_agent',
              '_handle_conn_event', 'check_can_live_migrate_source',
              'pre_live_migration', 'post_live_migration_at_destination',
              'swap_volume', '_swap_volume', 'detach_volume',
              'extend_volume', 'volume_snapshot_create',
              'volume_snapshot_delete', 'snapshot', 'suspend',
              'rollback_live_migration_at_destination')

#: What is overridden or called only from a major release of Nova on, as it
#: is new there.
SINCE = {'process_instances_at_startup': 34}

#: Of them, what not every release's LibvirtDriver has itself.
_INHERITED = ('cleanup_host',)

_DRIVER = 'nova/virt/libvirt/driver.py'
_BASE = 'nova/virt/driver.py'
#: file -> class, or '' for functions -> methods and attributes
USED = {
    _BASE: {'ComputeDriver': _INHERITED},
    _DRIVER: {'LibvirtDriver': tuple(set(OVERRIDDEN) - set(_INHERITED)) + (
        'list_instance_uuids', '_live_migration_copy_disk_paths',
        'get_instance_disk_info', '_live_migration_data_gb',
        '_get_migration_flags',
        '_is_post_copy_enabled', '_get_volume_config',
        '_live_migration_uri', '_host', '_disconnect_volume')},
    'nova/virt/libvirt/host.py': {'Host': ('get_guest', 'get_connection',
                                           '_wrapped_conn_lock',
                                           '_wrapped_conn',
                                           'write_instance_config')},
    'nova/virt/libvirt/guest.py': {'Guest': (
        'get_job_info', 'abort_job', 'pause', 'resume', 'poweroff',
        'delete_configuration', 'get_power_state', '_domain',
        'get_block_device', 'get_xml_desc', 'has_persistent_configuration',
        'is_active'),
        'BlockDevice': ('abort_job', 'copy', 'get_job_info',
                        'is_job_complete')},
    'nova/virt/libvirt/migration.py': {'': ('downtime_steps',)},
    'nova/virt/libvirt/utils.py': {
        '': ('get_instance_path_at_destination',)},
    'nova/virt/event.py': {'InstanceEvent': ('get_instance_uuid',),
                           'LifecycleEvent': ('get_transition',)},
    'nova/objects/migrate_data.py': {
        'LibvirtLiveMigrateBDMInfo': ('connection_info', 'as_disk_info')},
    # post_method and recover_method of _live_migration
    'nova/compute/manager.py': {
        'ComputeManager': (
            '_post_live_migration', '_post_live_migration_update_host',
            '_rollback_live_migration', '_delete_allocation_after_move',
            'update_available_resource', 'network_api', 'volume_api',
            '_waiting_live_migrations'),
        'ComputeVirtAPI': ('_compute',)},
    'nova/network/neutron.py': {'API': ('setup_networks_on_host',)},
    'nova/compute/utils.py': {'': ('add_instance_fault_from_exc',)},
    'nova/volume/cinder.py': {'': ('cinderclient',), 'API': (
        'attachment_get', 'attachment_delete', 'attachment_complete',
        'roll_detaching', 'get',
        'migrate_volume_completion')},
    'nova/image/glance.py': {'': ('generate_glance_url',),
                             'API': ('get', 'get_all')},
    'nova/context.py': {'': ('get_admin_context',)},
}


def signatures(root):
    """Return {'file:class.method': 'a, b=1'} of what we use.

    Attributes have 'an attribute' instead, functions no class.

    :param root: Path of the folder that holds the package nova
    """
    found = {}
    for file, classes in USED.items():
        tree = ast.parse((root / file).read_text(), file)
        owners = {node.name: node for node in tree.body
                  if isinstance(node, ast.ClassDef)}
        owners[''] = tree
        for name, wanted in classes.items():
            for member, what in _members(owners[name]):
                if member in wanted:
                    # of a property the getter comes first
                    found.setdefault(_title(file, name, member), what)
    return found


def _members(owner):
    """Yield (name, signature) of a class or a module."""
    for node in owner.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, _arguments(node.args)
    if isinstance(owner, ast.ClassDef):
        for node in ast.walk(owner):
            if (isinstance(node, ast.Attribute)
                    and isinstance(node.ctx, ast.Store)
                    and ast.unparse(node.value) == 'self'):
                yield node.attr, 'an attribute'


def _title(file, owner, member):
    return '%s:%s%s' % (file, owner and owner + '.', member)


def called():
    """Return the names of Nova's private API that our sources use.

    Those are what begins with an underscore and is not of self, and
    functions of Nova's modules.

    :returns: {name: where, text}
    """
    found = {}
    for path in sorted(_OURS.glob('*.py')):
        tree = ast.parse(path.read_text(), str(path))
        modules = {alias.asname or alias.name
                   for node in ast.walk(tree)
                   if isinstance(node, ast.ImportFrom)
                   and (node.module or '').split('.')[0] == 'nova'
                   for alias in node.names}
        for node in ast.walk(tree):
            if _is_private(node):
                found[node.attr] = path.name
            elif (isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and ast.unparse(node.func.value) in modules
                    and node.func.attr.islower()):
                found[node.func.attr] = path.name
    return found


def _is_private(node):
    return (isinstance(node, ast.Attribute) and node.attr[0] == '_'
            and not node.attr.startswith('__')
            and ast.unparse(node.value) != 'self')


def listed():
    """Return the names that USED has."""
    return {member for classes in USED.values()
            for members in classes.values() for member in members}


def used(release):
    """Return the names signatures() should find.

    :param release: e.g. 34.0.0
    """
    return {_title(file, name, method)
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
