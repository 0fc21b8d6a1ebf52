# SPDX-License-Identifier: Apache-2.0
"""Guests for the lab, the benchmarks and tests.

=========== =============================================================
package     the guest
=========== =============================================================
synthetic   one program on a kernel: fills memory with known content,
            works on it, verifies it
debian      Debian with a web server and a database
lister      busybox and the page-cache lister, for the tests of the latter
ssh         busybox and an SSH server, for Tempest
=========== =============================================================

Shared by them: ``kernel``, ``cpio``, ``programs`` and ``bootdisk`` make what
is booted, ``cache`` keeps it; ``line``, ``messages`` and ``orders`` talk to
the program in the guest.
"""
