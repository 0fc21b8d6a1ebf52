# SPDX-License-Identifier: Apache-2.0
"""Kinds of machines the lister's guests can be."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One of them, as an emulator has it.

    :ivar tools: what the names of its compiler's programs begin with
    :ivar emulator: QEMU to be used; None: one of the project's own
    :ivar memory: guest-physical address where memory begins, bytes
    """

    tools: str = ''
    emulator: str | None = None
    machine: str = 'pc'
    cpu: str | None = None
    console: str = 'ttyS0'
    memory: int = 0


X86 = Architecture()
ARM64 = Architecture('aarch64-linux-gnu-', 'qemu-system-aarch64', 'virt',
                     'cortex-a57', 'ttyAMA0', 1 << 30)


def of(version):
    """That of a kernel, by its version: 6.1.0-50-cloud-arm64."""
    return ARM64 if version.endswith('arm64') else X86
