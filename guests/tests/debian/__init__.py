# SPDX-License-Identifier: Apache-2.0
"""Tests that boot the Debian guest: minutes each, where it is emulated.

They are not of ``make test`` but of ``make debian-guest-check``.
"""
