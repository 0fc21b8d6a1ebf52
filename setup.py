# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import setuptools

# pbr counts commits since the last tag; an unpacked archive has none and
# a shallow clone not all of them.
git = Path(__file__).resolve().with_name('.git')
if not git.exists() or (git / 'shallow').exists():
    os.environ.setdefault('PBR_VERSION', '0.1.0.dev0')

setuptools.setup(setup_requires=['pbr>=6.0.0'], pbr=True)
