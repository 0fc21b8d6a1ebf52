# SPDX-License-Identifier: Apache-2.0
"""Fetch, patch, build and install QEMU; the command is ``qemu/build``.

Standard library only: it runs before the project's environment exists.

==============  =====================================================
``debian``      the source package, through apt
``tree``        a tree = pristine source + our files + hook patches
``recipe``      configure options, toolchain, the hash of all inputs
``compiler``    configure and ninja in a tree that is kept
``roms``        firmware and option ROMs
``prefix``      the installed result, put in place at once
==============  =====================================================
"""
