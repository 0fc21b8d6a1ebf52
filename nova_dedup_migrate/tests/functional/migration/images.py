# SPDX-License-Identifier: Apache-2.0
"""Disk images of all kinds for the scripted guest."""

import pathlib
import subprocess

from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import spec


class Images:
    """Makes images in a directory, with the tools beside a QEMU."""

    def __init__(self, directory, binary):
        self.directory = directory
        self._img = pathlib.Path(binary).with_name('qemu-img')

    def img(self, *argv):
        subprocess.run([self._img, *map(str, argv)], check=True,
                       capture_output=True, cwd=self.directory)

    def raw(self, name='raw.img', **given):
        """Return (path, content)."""
        path = self.directory / name
        return path, scripted.write_disk(path, **given)

    def qcow2(self, name='disk.qcow2', compressed=False, options=()):
        """Return (path, content) of an image without a backing file."""
        raw, content = self.raw(name + '.raw')
        path = self.directory / name
        self.img('convert', '-O', 'qcow2',
                 *(['-c'] if compressed else []),
                 *(['-o', ','.join(options)] if options else []), raw, path)
        return path, content

    def overlay(self, base, base_format, name='overlay.qcow2', options=()):
        """Return the path of an empty qcow2 over base."""
        self.img('create', '-f', 'qcow2', '-F', base_format, '-b', base,
                 *(['-o', ','.join(options)] if options else []), name)
        return self.directory / name

    @staticmethod
    def disk(*layers, driver='file', **format):
        """A spec.Disk over layers of (path, format), the top one last.

        The nodes are disk0-file and disk0-format, and for the layers
        below base0-file, base0-format, base1-file ...
        """
        nodes = []
        names = ['base%d' % n for n in range(len(layers) - 1)] + ['disk0']
        backing = None
        for (path, kind), name in zip(layers, names, strict=True):
            below = name != 'disk0'
            nodes.append({'driver': driver, 'node-name': name + '-file',
                          'filename': str(path),
                          'auto-read-only': below})
            node = {'driver': kind, 'node-name': name + '-format',
                    'file': name + '-file', 'auto-read-only': below}
            if kind == 'qcow2':
                node['backing'] = backing
            if not below:
                node.update(format)
            nodes.append(node)
            backing = name + '-format'
        return spec.Disk(blockdev=tuple(nodes))
