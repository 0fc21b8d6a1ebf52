# SPDX-License-Identifier: Apache-2.0
"""Tests of what runs in Nova; they need Nova and libvirt-python."""

from nova import objects

objects.register_all()
