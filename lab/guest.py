# SPDX-License-Identifier: Apache-2.0
"""The small Linux guest of the lab, and how it is asked for its memory.

It is the guest of the benchmarks: a kernel of Debian's, one program, and
a disk full of files with known content that it reads into its page cache.
"""

import json
import os
import pathlib
import select
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

IMAGE = 'small-linux'
#: MiB of memory, and of anonymous memory filled with a pattern.
MEMORY = 512
ANONYMOUS = 16
#: Name of a flavor -> its extra specs.
FLAVORS = {
    'small': {},
    'small-stock': {'dedup_migrate:strategy': 'off'},
}


def cache_mib(memory=MEMORY):
    """MiB of file data that fit beside kernel and anonymous memory."""
    return memory - kernel_mib(memory) - ANONYMOUS - SPARE_MIB - 24


def workload(memory=MEMORY):
    return Workload(cache=cache_mib(memory), anon=ANONYMOUS)


def upload(cloud):
    """Put the image and its flavors into the cloud, where they lack."""
    connection = client.connect(cloud)
    _flavors(connection.compute)
    if any(image.status == 'active'
           for image in connection.image.images(name=IMAGE)):
        return 'is there'
    image = bootdisk.build(workload())
    for left in connection.image.images(name=IMAGE):
        # an upload that was broken off
        connection.image.delete_image(left)
    connection.image.create_image(
        IMAGE, filename=str(image), disk_format='raw',
        container_format='bare', visibility='public',
        validate_checksum=False, timeout=300, wait=True,
        hw_disk_bus='virtio')
    return '%d MiB' % (os.stat(image).st_size >> 20)


def _flavors(compute):
    for name, specs in FLAVORS.items():
        if compute.find_flavor(name) is None:
            flavor = compute.create_flavor(
                name=name, ram=MEMORY, vcpus=1, disk=1)
            if specs:
                compute.create_flavor_extra_specs(flavor, specs)


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
                if (message['type'] == 'reply'
                        and message.get('command') == name):
                    return _checked(command, message)
    finally:
        os.close(fd)
    raise errors.LabError('the guest does not answer %r within %.0f s' % (
        command, timeout))


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


def verify(terminal):
    """Have the guest verify all its memory that has known content.

    :returns: (bytes, number of errors, first error)
    """
    reply = ask(terminal, 'verify cache anon')
    return (int(reply.get('cache', 0) + reply.get('anon', 0)),
            int(reply.get('errors', 0)), str(reply.get('error', '')))
