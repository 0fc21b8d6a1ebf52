# SPDX-License-Identifier: Apache-2.0
"""Builds Debian packages; the commands are in tools/.

==============  =====================================================
``chroot``      systems of a Debian suite, made by mmdebstrap
``source``      the source packages: ours, and QEMU's with our series
``build``       binary packages of a source package; lintian
``qemu``        those of QEMU
``repository``  a directory that apt installs from
``check``       installs, upgrades and purges packages; checks them
``host``        what packages leave in a system
``services``    starts services of the packages
``openstack``   what Debian's OpenStack finds of the packages
==============  =====================================================
"""
