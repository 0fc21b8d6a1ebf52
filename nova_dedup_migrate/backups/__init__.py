# SPDX-License-Identifier: Apache-2.0
"""The client of cinder-backup-assist, which serves volumes' backups.

Control is on the message bus (``api``, ``objects``), data on a TLS
connection to the daemon (``connection``, ``frames``).  Compute hosts have
no access to the backup store, and no credentials of it.
"""
