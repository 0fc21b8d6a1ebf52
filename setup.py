# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import setuptools

# pbr counts commits since the last tag; an unpacked archive has none and
# a shallow clone not all of them.
git = Path(__file__).resolve().with_name('.git')
if not git.exists() or (git / 'shallow').exists():
    os.environ.setdefault('PBR_VERSION', '0.1.0.dev0')

# Nova looks for a driver in nova.virt only, so one package of ours goes
# there. pyproject.toml cannot name it beside what is found.
NOVA = 'nova.virt.dedup_migrate'
OURS = 'nova_dedup_migrate'

setuptools.setup(
    setup_requires=['pbr>=6.1.1'], pbr=True,
    packages=[NOVA, *setuptools.find_packages(include=[OURS, OURS + '.*'])],
    package_dir={NOVA: OURS + '/compute/shim'})
