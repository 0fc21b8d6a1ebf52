# SPDX-License-Identifier: Apache-2.0
"""Volumes in use that move to another backend, filled from a backup.

QEMU records the writes to each volume (``watches``).  Meanwhile it is read,
slowly (``reading``), and what its blocks are is kept (``fingerprints``).  When
it moves, all blocks that a backup has as well are filled from the backup
(``fill``), and Nova's own swap copies what is left.
"""
