# SPDX-License-Identifier: Apache-2.0
"""The daemon cinder-backup-assist.

A compute host finds and opens a backup over the message bus (``endpoint``)
and gets a ticket (``tickets``).  With it and its certificate it makes one
connection to the data port (``web``), which belongs to one ``session``.
"""
