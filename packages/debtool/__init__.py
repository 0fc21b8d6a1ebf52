# SPDX-License-Identifier: Apache-2.0
"""Builds Debian packages and checks them; the commands are in tools/.

==============  =====================================================
``chroot``      systems of a Debian suite, made by mmdebstrap
``source``      the source packages: ours, and QEMU's with our series
``build``       binary packages of a source package; lintian
``check``       installs, upgrades, removes and purges packages
``repository``  a directory that apt installs from
==============  =====================================================
"""
