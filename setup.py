# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path

import setuptools

# pbr takes the version from git; an unpacked archive has no git.
if not Path(__file__).with_name('.git').exists():
    os.environ.setdefault('PBR_VERSION', '0.1.0')

setuptools.setup(setup_requires=['pbr>=6.0.0'], pbr=True)
