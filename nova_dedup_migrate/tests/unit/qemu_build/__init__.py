# SPDX-License-Identifier: Apache-2.0
"""Tests of the tool behind qemu/build; none needs the network."""

from pathlib import Path
import sys

# The tool belongs to the repository, not to the installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[4] / 'qemu'))
