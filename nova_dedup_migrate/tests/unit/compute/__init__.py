# SPDX-License-Identifier: Apache-2.0
"""Tests of what runs in Nova; they need Nova and libvirt-python."""

from nova import objects
from nova.virt.libvirt import guest

objects.register_all()
# Up to 32 Nova imports libvirt when it makes the first one, and cannot say
# before what a job is.
guest.Guest(None)
