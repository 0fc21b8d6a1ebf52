# SPDX-License-Identifier: Apache-2.0
"""Backup drivers that hold a backup that is being read from deletion.

They are optional: the daemon reads what Cinder's own drivers write.  Each
is Cinder's own, with the deletion held while cinder-backup-assist reads the
backup.  Records of backups name Cinder's own driver, so backups are usable
by either, and backup_driver can be changed back at any time.
"""
