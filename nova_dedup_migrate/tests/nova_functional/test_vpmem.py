# SPDX-License-Identifier: Apache-2.0
"""Nova's tests of persistent memory."""

from nova_dedup_migrate.tests.nova_functional import adopt

globals().update(adopt.adopt('libvirt.test_vpmem'))
