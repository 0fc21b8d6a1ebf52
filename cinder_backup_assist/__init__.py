# SPDX-License-Identifier: Apache-2.0
"""Serves the blocks of volumes from the backups that Cinder has of them.

The daemon cinder-backup-assist runs beside cinder-backup and reads what
that has written.  ``blockmap`` says where each block of a volume is,
``store`` reads Cinder's database and backup store, ``service`` answers
compute hosts.  Nothing else of this project imports Cinder.
"""
