# SPDX-License-Identifier: Apache-2.0
"""The QEMU command line of a GuestSpec."""

import json

#: Bus of the device, by kind of disk.
_FRONTENDS = {'virtio-blk': 'virtio-blk-pci', 'virtio-scsi': 'scsi-hd',
              'nvme': 'nvme', 'ide': 'ide-hd'}


def build(spec, binary, paths, qmp_fd, incoming=False, paused=False):
    """Return argv.

    :param spec: GuestSpec
    :param binary: path of QEMU
    :param paths: paths.console and paths.channel(name): files or sockets
    :param qmp_fd: descriptor of a connected socket, inherited by QEMU
    :param incoming: wait for a migration
    :param paused: do not run the guest's CPUs
    """
    argv = [binary, '-name', _escape(spec.name), '-nodefaults',
            '-no-user-config', '-display', 'none',
            '-accel', spec.accel, '-smp', str(spec.vcpus),
            '-msg', 'timestamp=on',
            '-chardev', 'socket,id=qmp,fd=%d' % qmp_fd,
            '-mon', 'chardev=qmp,mode=control']
    if spec.firmware is not None:
        argv += ['-L', str(spec.firmware)]
    if spec.cpu is not None:
        argv += ['-cpu', spec.cpu]
    argv += _memory(spec)
    argv += _boot(spec)
    argv += _serial(spec, paths)
    for name, disk in zip(spec.disk_ids(), spec.disks, strict=True):
        argv += _disk(name, disk)
    if incoming:
        argv += ['-incoming', 'defer']
    if paused:
        argv += ['-S']
    return argv + list(spec.extra_args)


def _escape(text):
    """QEMU's option parser takes a comma doubled as one comma."""
    return str(text).replace(',', ',,')


def _memory(spec):
    size = '%dM' % spec.memory_mib
    if spec.memory_path is None and not spec.memory_share:
        return ['-machine', spec.machine, '-m', size]
    # The block keeps the name of ordinary RAM, so that guests with and
    # without a backend can be migrated to each other.
    backend = {'id': 'pc.ram',
               'x-use-canonical-path-for-ramblock-id': False,
               'size': spec.memory_mib << 20,
               'share': spec.memory_share}
    if spec.memory_path is None:
        backend['qom-type'] = 'memory-backend-memfd'
    else:
        backend['qom-type'] = 'memory-backend-file'
        backend['mem-path'] = str(spec.memory_path)
    return ['-object', json.dumps(backend), '-m', size,
            '-machine', spec.machine + ',memory-backend=pc.ram']


def _boot(spec):
    if spec.kernel is None:
        return []
    argv = ['-kernel', str(spec.kernel)]
    if spec.initrd is not None:
        argv += ['-initrd', str(spec.initrd)]
    if spec.append:
        argv += ['-append', spec.append]
    return argv


def _serial(spec, paths):
    argv = ['-chardev',
            'file,id=console,path=%s' % _escape(paths.console),
            '-serial', 'chardev:console']
    if any(c.device == 'virtio-serial' for c in spec.channels):
        argv += ['-device', 'virtio-serial-pci,id=channels']
    for number, channel in enumerate(spec.channels):
        chardev = chardev_id(number)
        backend = ('file' if channel.backend == 'file'
                   else 'socket,server=on,wait=off')
        argv += ['-chardev', '%s,id=%s,path=%s' % (
            backend, chardev, _escape(paths.channel(channel.name)))]
        if channel.device == 'uart':
            argv += ['-serial', 'chardev:' + chardev]
        else:
            argv += ['-device', json.dumps({
                'driver': 'virtserialport', 'chardev': chardev,
                'name': channel.name})]
    return argv


def chardev_id(number):
    """Return the id of the chardev of a channel."""
    return 'channel%d' % number


def blockdevs(name, disk):
    """Return the -blockdev dictionaries of a disk, children first."""
    if disk.blockdev:
        return list(disk.blockdev)
    cache = {'direct': disk.cache == 'none', 'no-flush': False}
    return [
        {'driver': 'file', 'node-name': name + '-file',
         'filename': str(disk.path), 'aio': disk.aio, 'cache': cache,
         'read-only': disk.read_only},
        {'driver': disk.format, 'node-name': name + '-format',
         'file': name + '-file', 'cache': cache,
         'read-only': disk.read_only}]


def _disk(name, disk):
    argv = []
    nodes = blockdevs(name, disk)
    for node in nodes:
        argv += ['-blockdev', json.dumps(node)]
    device = {'driver': _FRONTENDS[disk.device], 'id': name,
              'drive': nodes[-1]['node-name']}
    # nvme insists on a serial number
    serial = disk.serial or (name if disk.device == 'nvme' else None)
    if serial:
        device['serial'] = serial
    controller = None
    if disk.device == 'virtio-scsi':
        controller = {'driver': 'virtio-scsi-pci', 'id': name + '-bus'}
        device['bus'] = name + '-bus.0'
    if disk.iothread:
        argv += ['-object', json.dumps({'qom-type': 'iothread',
                                        'id': name + '-thread'})]
        (controller or device)['iothread'] = name + '-thread'
    if controller:
        argv += ['-device', json.dumps(controller)]
    return argv + ['-device', json.dumps(device)]
