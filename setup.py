# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import setuptools
from setuptools.command import build_py as base

# pbr counts commits since the last tag; an unpacked archive has none and
# a shallow clone not all of them. An sdist has its version in PKG-INFO.
top = Path(__file__).resolve().parent
if not (top / 'PKG-INFO').exists() and (
        not (top / '.git').exists() or (top / '.git/shallow').exists()):
    os.environ.setdefault('PBR_VERSION', '0.1.0.dev0')

PACKAGES = ('nova_dedup_migrate', 'nova_dedup_migrate_dashboard',
            'nova_dedup_migrate_tempest_plugin', 'cinder_backup_assist')
# What it does is described in nova_dedup_migrate/compute/finder.py.
PTH = 'nova-dedup-migrate.pth'


class build_py(base.build_py):
    """Puts the .pth file beside the packages, of editable ones, too."""

    def run(self):
        super().run()
        directory = (self.get_finalized_command('install').install_lib
                     if self.editable_mode else self.build_lib)
        self.copy_file(str(top / PTH), directory)


class Distribution(setuptools.Distribution):
    """Has our command; pbr puts its own list in the place of cmdclass."""

    def get_command_class(self, command):
        if command == build_py.__name__:
            return build_py
        return super().get_command_class(command)


setuptools.setup(
    setup_requires=['pbr>=6.1.1'], pbr=True,
    distclass=Distribution,
    packages=setuptools.find_packages(
        include=[pattern for package in PACKAGES
                 for pattern in (package, package + '.*')]))
