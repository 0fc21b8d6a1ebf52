# SPDX-License-Identifier: Apache-2.0
"""libvirt's domain XML (https://libvirt.org/formatdomain.html), written."""

import os
import string
from xml.etree import ElementTree

from nova_dedup_migrate.hypervisor import errors

_QEMU = 'http://libvirt.org/schemas/domain/qemu/1.0'
#: bus and prefix of the target's name, by kind of disk
_BUSES = {'virtio-blk': ('virtio', 'vd'), 'virtio-scsi': ('scsi', 'sd'),
          'ide': ('ide', 'hd')}
#: devices that write into a file of the guest's directory
_CHARACTER_DEVICES = ('serial', 'console', 'channel', 'parallel')


def build(spec, name, uuid, run_dir):
    """Return the XML of a GuestSpec.

    :param name: the domain's
    :param run_dir: Path, as in DirectGuest
    :raises NotOffered: libvirt has no way to do what spec asks for
    """
    _check(spec)
    ElementTree.register_namespace('qemu', _QEMU)
    root = _tree('domain', {'type': 'kvm' if spec.accel == 'kvm'
                            else 'qemu'}, [
        _tree('name', text=name),
        _tree('uuid', text=uuid),
        _tree('memory', {'unit': 'MiB'}, text=str(spec.memory_mib)),
        _tree('vcpu', text=str(spec.vcpus)),
        _tree('iothreads', text=str(len(spec.disks))),
        _boot(spec),
        _tree('features', {}, [_tree('acpi'), _tree('apic')]),
        _tree('devices', {}, [
            _tree('emulator', text=os.fspath(spec.binary)),
            *[_disk(spec, number) for number in range(len(spec.disks))],
            _tree('controller', {'type': 'usb', 'model': 'none'}),
            *_controllers(spec),
            _character('serial', 'file', run_dir / 'console.log',
                       {'port': '0'}),
            *_channels(spec, run_dir),
            _tree('memballoon', {'model': 'none'})])])
    if spec.memory_share:
        root.append(_tree('memoryBacking', {}, [
            _tree('source', {'type': 'memfd'}),
            _tree('access', {'mode': 'shared'})]))
    if spec.cpu is not None:
        root.append(_tree('cpu', {'mode': 'custom', 'check': 'none'}, [
            _tree('model', {'fallback': 'forbid'}, text=spec.cpu)]))
    if spec.extra_args or spec.env:
        root.append(_tree('{%s}commandline' % _QEMU, {}, [
            *[_tree('{%s}arg' % _QEMU, {'value': value})
              for value in spec.extra_args],
            *[_tree('{%s}env' % _QEMU, {'name': key, 'value': value})
              for key, value in spec.env.items()]]))
    return ElementTree.tostring(root, encoding='unicode')


def moved(xml, binary, old_dir, new_dir):
    """Return XML of the same guest with another directory and QEMU."""
    root = ElementTree.fromstring(xml)
    root.find('./devices/emulator').text = os.fspath(binary)
    for kind in _CHARACTER_DEVICES:
        for source in root.iterfind('./devices/%s/source' % kind):
            path = source.get('path', '')
            if path.startswith('%s/' % old_dir):
                source.set('path', str(new_dir) + path[len(str(old_dir)):])
    return ElementTree.tostring(root, encoding='unicode')


def _check(spec):
    def no(option, value, reason):
        raise errors.NotOffered(option=option, value=value, reason=reason)

    if spec.firmware is not None:
        no('firmware', spec.firmware, 'libvirt passes no -L to QEMU')
    if spec.memory_path is not None:
        no('memory_path', spec.memory_path,
           'libvirt takes directories for memory from qemu.conf')
    if spec.cpu is not None and ',' in spec.cpu:
        no('cpu', spec.cpu, 'libvirt takes the name of a model')
    for disk in spec.disks:
        if disk.device not in _BUSES:
            no('device', disk.device, 'libvirt has no such disk')
        if disk.blockdev:
            no('blockdev', disk.blockdev, 'libvirt makes its own')


def _tree(tag, attributes=None, children=(), text=None):
    element = ElementTree.Element(tag, attributes or {})
    element.extend(children)
    element.text = text
    return element


def _boot(spec):
    boot = _tree('os', {}, [_tree('type', {'arch': 'x86_64',
                                           'machine': spec.machine},
                                  text='hvm')])
    for tag, value in (('kernel', spec.kernel), ('initrd', spec.initrd),
                       ('cmdline', spec.append)):
        if value:
            boot.append(_tree(tag, text=str(value)))
    return boot


def _controllers(spec):
    if not any(disk.device == 'virtio-scsi' for disk in spec.disks):
        return []
    return [_tree('controller', {'type': 'scsi', 'model': 'virtio-scsi'})]


def _disk(spec, number):
    disk = spec.disks[number]
    bus, prefix = _BUSES[disk.device]
    if bus == 'ide' and 'q35' in spec.machine:
        bus, prefix = 'sata', 'sd'
    driver = {'name': 'qemu', 'type': disk.format, 'cache': disk.cache,
              'io': disk.aio}
    if disk.iothread and bus == 'virtio':
        driver['iothread'] = str(number + 1)
    element = _tree('disk', {'type': 'file', 'device': 'disk'}, [
        _tree('driver', driver),
        _tree('source', {'file': str(disk.path)}),
        _tree('target', {'dev': prefix + string.ascii_lowercase[number],
                         'bus': bus})])
    if disk.id is not None:
        # libvirt leaves only names of this kind to its users
        element.append(_tree('alias', {'name': 'ua-' + disk.id}))
    if disk.serial is not None:
        element.append(_tree('serial', text=disk.serial))
    if disk.read_only:
        element.append(_tree('readonly'))
    return element


def _character(tag, kind, path, target):
    source = {'path': str(path)}
    if kind == 'unix':
        source['mode'] = 'bind'
    return _tree(tag, {'type': kind}, [_tree('source', source),
                                       _tree('target', target)])


def _channels(spec, run_dir):
    elements = []
    for number, channel in enumerate(spec.channels):
        file = channel.backend == 'file'
        path = run_dir / (channel.name + ('.log' if file else '.sock'))
        uart = channel.device == 'uart'
        elements.append(_character(
            'serial' if uart else 'channel', 'file' if file else 'unix',
            path, {'port': str(number + 1)} if uart
            else {'type': 'virtio', 'name': channel.name}))
    return elements
