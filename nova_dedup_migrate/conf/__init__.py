# SPDX-License-Identifier: Apache-2.0
"""The options of nova-dedup-migrate.

They stand in nova.conf, in the group [dedup_migrate].  Nothing is
registered or read at import: call register_opts() of a module here with
the ConfigOpts in use, which in nova-compute is nova.conf.CONF.
"""
