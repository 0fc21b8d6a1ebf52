# SPDX-License-Identifier: Apache-2.0
"""The guest of Tempest takes its configuration from its config drive."""

import json
import shutil
import socket
import subprocess
import time

from guests.errors import run
from guests.ssh import image
from nova_dedup_migrate.tests import base
from testkit import qemus

#: What QEMU's user network gives the first guest.
_ADDRESS = {'type': 'ipv4', 'ip_address': '10.0.2.15',
            'netmask': '255.255.255.0'}


class SshGuestTest(base.TestCase):

    timeout = 600

    def setUp(self):
        self.binary = qemus.require(self, 'stock')
        for tool in ('dropbear', 'genisoimage', 'ssh', 'ssh-keygen'):
            if shutil.which(tool, path='/usr/sbin:/usr/bin') is None:
                self.skipTest('%s is not installed' % tool)
        super().setUp()
        self.directory = self.temporary_dir()
        self.key = self.directory / 'key'
        run(['ssh-keygen', '-q', '-t', 'ecdsa', '-N', '', '-f', self.key])

    def config_drive(self):
        """Make one as Nova does; return its path."""
        latest = self.directory / 'config/openstack/latest'
        latest.mkdir(parents=True)
        public = self.key.with_suffix('.pub').read_text()
        (latest / 'meta_data.json').write_text(json.dumps(
            {'hostname': 'one', 'public_keys': {'my key': public}}))
        (latest / 'network_data.json').write_text(json.dumps(
            {'links': [], 'networks': [{'id': 'network0', **_ADDRESS}]}))
        path = self.directory / 'config.iso'
        run(['genisoimage', '-quiet', '-o', path, '-J', '-r', '-V',
             'config-2', self.directory / 'config'])
        return path

    def boot(self):
        with socket.create_server(('127.0.0.1', 0)) as server:
            self.port = server.getsockname()[1]
        guest = subprocess.Popen(
            [self.binary, '-nodefaults', '-nographic', '-machine', 'pc',
             '-cpu', 'Nehalem', '-m', '192', '-monitor', 'stdio', '-serial',
             'file:%s' % (self.directory / 'console'), '-drive',
             'file=%s,if=virtio,format=raw,snapshot=on' % image.build(),
             '-drive', 'file=%s,media=cdrom,format=raw'
             % self.config_drive(), '-netdev', 'user,id=net,restrict=on,'
             'hostfwd=tcp:127.0.0.1:%d-:22' % self.port,
             '-device', 'virtio-net,netdev=net'],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(guest.wait)
        self.addCleanup(guest.kill)
        self.addCleanup(guest.stdin.close)
        return guest

    def run_command(self, command):
        """Run a command in the guest as soon as it can be reached."""
        while True:
            done = subprocess.run(
                ['ssh', '-p', str(self.port), '-i', self.key, '-o',
                 'StrictHostKeyChecking=no', '-o', 'BatchMode=yes', '-o',
                 'UserKnownHostsFile=/dev/null', 'root@127.0.0.1', command],
                capture_output=True, text=True, timeout=self.timeout,
                stdin=subprocess.DEVNULL, check=False)
            if done.returncode != 255:
                return done.stdout.split()
            time.sleep(1)

    def test_config_drive_and_power_button(self):
        guest = self.boot()
        self.assertEqual(['one', '0'], self.run_command('hostname; id -u'))
        # what tests of Tempest use in a guest
        self.assertEqual(
            ['/dev/vda2', '/dev/sr0', 'vda', 'same'], self.run_command(
                'set -eu -o pipefail; df /var/tmp | tail -n 1 |'
                ' cut -d " " -f 1; sudo blkid -L config-2;'
                ' lsblk -lb --nodeps | grep -o "^vda";'
                ' echo a | sudo tee /var/tmp/a >/dev/shm/a;'
                ' cmp /var/tmp/a /dev/shm/a && echo same'))
        guest.stdin.write(b'system_powerdown\n')
        guest.stdin.flush()
        self.assertEqual(0, guest.wait(self.timeout))
