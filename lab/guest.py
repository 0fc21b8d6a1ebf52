# SPDX-License-Identifier: Apache-2.0
"""The guests' images in the cloud, and their consoles on the hosts.

The small one (guests.synthetic) is a kernel of Debian's, one program, and
a disk full of files with known content that it reads into its page cache.
Its images have the property for the port over which it lists that cache.
"""

import os
import pathlib
import shutil
import xml.etree.ElementTree as etree

from guests.debian import image as debian_image
from guests.ssh import image as ssh_image
from guests.synthetic import bootdisk
from guests.synthetic.workload import kernel_mib
from guests.synthetic.workload import SPARE_MIB
from guests.synthetic.workload import Workload
from lab import client
from lab import errors

IMAGE = 'small-linux'
#: Half of its files are on a second disk, and that disk.
HALF_IMAGE, DATA_IMAGE = 'small-linux-half', 'small-data'
#: Debian with a web server and a database, see guests/debian.
DEBIAN_IMAGE = 'debian-services'
#: The same, which cannot be asked for its page cache.
SILENT_IMAGE = 'debian-services-silent'
#: Nova fills ephemeral disks of instances of this os_type with those files,
#: see virt_mkfs in the template nova.conf.
OS_TYPE = 'linux'
#: One that fits 128 MiB, and does nothing.
IDLE_IMAGE, IDLE_MEMORY = 'small-linux-idle', 128
_IDLE = Workload(cache=8, anon=4)
#: One to which Tempest logs in; it is configured by its config drive.
SSH_IMAGE, SSH_MEMORY = 'small-linux-ssh', 192
SSH_PROPERTIES = {'hw_disk_bus': 'virtio', 'img_config_drive': 'mandatory'}
#: One of which a third is memory that it may write to, when told.
WRITER_IMAGE, WRITER_MEMORY, WRITER_ANONYMOUS = 'small-linux-writer', 256, 32
_WRITER = Workload(cache=72, anon=WRITER_ANONYMOUS)
_PORT = 'dedup_migrate:page_cache_port'
_PROPERTIES = {'hw_disk_bus': 'virtio',
               _PORT: 'true'}
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


def upload_idle(cloud):
    """Put the image of the guest that does nothing there, likewise."""
    return _upload(cloud, IDLE_IMAGE,
                   lambda: bootdisk.build(_IDLE, _IDLE.cache))


def upload_writer(cloud):
    """Put the image of the guest that writes there, likewise."""
    return _upload(cloud, WRITER_IMAGE,
                   lambda: bootdisk.build(_WRITER, _WRITER.cache))


def upload_ssh(cloud):
    """Put the image of the guest to log in to there, likewise."""
    return _upload(cloud, SSH_IMAGE, ssh_image.build, **SSH_PROPERTIES)


def upload_debian(cloud):
    """Put the image of the Debian guest there, likewise."""
    return _upload(cloud, DEBIAN_IMAGE, debian_image.build,
                   hw_qemu_guest_agent='yes')


def upload_silent(cloud):
    """Put it there as an image whose guest cannot be asked for anything."""
    return _upload(cloud, SILENT_IMAGE, debian_image.build,
                   **{_PORT: 'false'})


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
        **{**_PROPERTIES, **properties})
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
