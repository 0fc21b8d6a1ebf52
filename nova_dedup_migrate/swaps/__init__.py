# SPDX-License-Identifier: Apache-2.0
"""Volumes in use that move to another backend, filled from a backup.

A backup that Cinder has made while QEMU recorded all writes tells what most
of a volume is without reading it.  ``watches`` has QEMU record, ``fill``
builds the new volume, and Nova's own swap copies what is left.
"""
