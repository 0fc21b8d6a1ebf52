# SPDX-License-Identifier: Apache-2.0
"""The small Linux guest of the lab, and how it is asked for its memory.

It is the guest of the benchmarks: a kernel of Debian's, one program, and
a disk full of files with known content that it reads into its page cache.
Its images ask for the port over which it lists that cache.
"""

import json
import os
import pathlib
import select
import shutil
import termios
import time
import tty
import xml.etree.ElementTree as etree

from benchmarks.guest.report import LineParser
from benchmarks.guest.workload import kernel_mib
from benchmarks.guest.workload import SPARE_MIB
from benchmarks.guest.workload import Workload
from lab import bootdisk
from lab import client
from lab import errors
from lab.debian import image as debian_image

IMAGE = 'small-linux'
#: Half of its files are on a second disk, and that disk.
HALF_IMAGE, DATA_IMAGE = 'small-linux-half', 'small-data'
#: Debian with a web server and a database, see lab/debian.
DEBIAN_IMAGE = 'debian-services'
#: Nova fills ephemeral disks of instances of this os_type with those files,
#: see virt_mkfs in the template nova.conf.
OS_TYPE = 'linux'
_PROPERTIES = {'hw_disk_bus': 'virtio',
               'dedup_migrate:page_cache_port': 'true'}
#: What may be done to its lister, see benchmarks/guest/src/guest.h.
MALTREATED = ('hang', 'kill', 'break')
#: MiB of memory, and of anonymous memory filled with a pattern.
MEMORY = 512
ANONYMOUS = 16
_DATA_SEED = 2


def cache_mib(memory=MEMORY):
    """MiB of file data that fit beside kernel and anonymous memory."""
    return memory - kernel_mib(memory) - ANONYMOUS - SPARE_MIB - 24


def workload(memory=MEMORY, disks=1):
    """What the guest does.

    :param disks: on which its files are, in equal parts
    """
    return Workload(cache=cache_mib(memory), anon=ANONYMOUS, disks=disks)


def disk_image():
    """Return the Path of the guest's disk, built if it is not cached."""
    return bootdisk.build(workload(), cache_mib())


def upload(cloud):
    """Put the guest's image into the cloud, where it lacks."""
    shutil.copyfile(_data(), cloud.data_disk)
    return _upload(cloud, IMAGE, disk_image)


def upload_halves(cloud):
    """Put the images of the guest with two disks there, likewise."""
    _upload(cloud, DATA_IMAGE, _data)
    _upload(cloud, HALF_IMAGE,
            lambda: bootdisk.build(workload(disks=2), cache_mib() // 2),
            os_type=OS_TYPE)


def upload_debian(cloud):
    """Put the image of the Debian guest there, likewise."""
    return _upload(cloud, DEBIAN_IMAGE, debian_image.build,
                   hw_qemu_guest_agent='yes')


def _data():
    return bootdisk.build_data(cache_mib() // 2, _DATA_SEED)


def _upload(cloud, name, build, **properties):
    images = client.connect(cloud).image
    if any(image.status == 'active' for image in images.images(name=name)):
        return 'is there'
    path = build()
    for left in images.images(name=name):
        # an upload that was broken off
        images.delete_image(left)
    images.create_image(
        name, filename=str(path), disk_format='raw',
        container_format='bare', visibility='public',
        validate_checksum=False, timeout=300, wait=True,
        **_PROPERTIES, **properties)
    return '%d MiB' % (os.stat(path).st_size >> 20)


def console(host, uuid):
    """Path of the terminal that is the guest's serial console.

    :raises LabError: no such guest runs on the host
    """
    done = host.run(['virsh', '-q', 'dumpxml', uuid], check=False)
    if done.returncode:
        raise errors.LabError('%s has no guest %s: %s' % (
            host.name, uuid, done.stderr.strip()))
    source = etree.fromstring(done.stdout).find(
        "./devices/serial[@type='pty']/source")
    if source is None:
        raise errors.LabError('guest %s has no serial terminal' % uuid)
    return pathlib.Path(source.get('path'))


def ask(terminal, command, timeout=120.0):
    """Send the guest a command, return its reply.

    :raises LabError: there is no answer, or the guest refuses
    """
    name = command.split()[0]
    parser = LineParser()
    deadline = time.monotonic() + timeout
    fd = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        tty.setraw(fd)
        termios.tcflush(fd, termios.TCIFLUSH)
        again = 0.0
        while (now := time.monotonic()) < deadline:
            # QEMU notices within a second that somebody is there, and
            # what was written before may be lost
            if now > again:
                os.write(fd, command.encode() + b'\n')
                again = now + 20
            if not select.select([fd], [], [], 1.0)[0]:
                continue
            for message in parser.feed(_read(fd)):
                if _is_reply(message, name):
                    return _checked(command, message)
    finally:
        os.close(fd)
    raise errors.LabError('the guest does not answer %r within %.0f s' % (
        command, timeout))


def _is_reply(message, name):
    """Whether it answers a command, and not the same sent once more."""
    return (message['type'] == 'reply' and message.get('command') == name
            and message.get('message') != 'busy')


def _read(fd):
    try:
        return os.read(fd, 65536)
    except OSError:
        # nobody at the other end, for now
        time.sleep(0.2)
        return b''


def _checked(command, message):
    if message.get('ok') is not True:
        raise errors.LabError('the guest refuses %r: %s' % (
            command, json.dumps(message)))
    return message


def ready(terminal, timeout=180.0):
    """Wait until the guest has filled its memory."""
    ask(terminal, 'ping', timeout)


def lister(terminal, what):
    """Do something to the lister in the guest.

    :param what: of MALTREATED, or go after hang and kill
    :raises LabError: none runs
    """
    ask(terminal, 'lister ' + what)


def verify(terminal):
    """Have the guest verify all its memory that has known content.

    :returns: (bytes, number of errors, first error)
    """
    reply = ask(terminal, 'verify cache anon')
    return (int(reply.get('cache', 0) + reply.get('anon', 0)),
            int(reply.get('errors', 0)), str(reply.get('error', '')))
