# SPDX-License-Identifier: Apache-2.0
"""Cinder's database and backup store, which are read and never written."""
