# SPDX-License-Identifier: Apache-2.0
"""A guest in 512 bytes.

It needs no kernel, starts in a second, and runs where only 16 and 32 bit
guests can, as under nested KVM on some machines:

1. in real mode it reads payload from the boot disk with the BIOS (int
   13h), which has the device write straight into the pages from LOAD on;
2. in protected mode it prints 'A' on COM1 and then passes over a window
   of RAM for ever, adding one to the first byte of each page, and prints
   'B' every report_every passes;
3. in each pass it checks all of that: the byte of every page against the
   number of passes, and a checksum of the payload against that of the
   first pass.  If something is wrong it prints 'X' and stops.  'E' says
   that the disk could not be read.
"""

import dataclasses
import pathlib
import random
import struct

ORIGIN = 0x7c00
#: Guest physical address of the payload; below the BIOS's data at 0x9f000
LOAD = 0x20000
#: Where the payload is on the disk
PAYLOAD_SECTOR = 64
#: Bytes a BIOS call reads (at most 127 sectors of 512), and most calls
CHUNK = 0x8000
MAX_CHUNKS = 14


@dataclasses.dataclass(frozen=True)
class BootSector:
    """What the guest does.

    :param start: first byte of the window, a multiple of 4096
    :param pages: size of the window in pages
    :param chunks: pieces of 32 KiB to read from disk, 0 to 14
    :param delay: turns of an empty loop after each pass, about a
        nanosecond each
    :param report_every: passes between two 'B', a power of two
    """

    start: int = 0x100000
    pages: int = 2048
    chunks: int = 0
    delay: int = 0
    report_every: int = 1

    def code(self):
        """Return the 512 bytes."""
        return _assemble(self)

    def write_image(self, path, size=1 << 20, seed=1):
        """Make a raw disk image that boots this, return its path.

        The payload is random, so that no compression helps.
        """
        path = pathlib.Path(path)
        offset = PAYLOAD_SECTOR * 512
        payload = random.Random(seed).randbytes(self.chunks * CHUNK)
        with path.open('wb') as image:
            image.truncate(max(size, offset + len(payload)))
            image.write(self.code())
            image.seek(offset)
            image.write(payload)
        return path


class _Code:
    """Bytes, with names for places in them that may come later."""

    def __init__(self):
        self._bytes = bytearray()
        self._places = {}
        self._fixups = []

    def op(self, hexadecimal, *values):
        """Add an instruction.

        Each value is either bytes or (kind, label): kind 'rel8' for a
        short jump, 'abs16' and 'abs32' for an address, with an optional
        third item to add to it.
        """
        self._bytes += bytes.fromhex(hexadecimal)
        for value in values:
            if isinstance(value, bytes):
                self._bytes += value
                continue
            kind, label, *add = value
            self._fixups.append((len(self._bytes), kind, label,
                                 add[0] if add else 0))
            self._bytes += bytes({'rel8': 1, 'abs16': 2, 'abs32': 4}[kind])

    def label(self, name):
        self._places[name] = len(self._bytes)

    def link(self):
        """Return the bytes with all labels resolved."""
        for at, kind, label, add in self._fixups:
            place = self._places[label] + add
            if kind == 'rel8':
                self._bytes[at:at + 1] = struct.pack('<b', place - at - 1)
            else:
                size, form = {'abs16': (2, '<H'), 'abs32': (4, '<I')}[kind]
                self._bytes[at:at + size] = struct.pack(form,
                                                        ORIGIN + place)
        return bytes(self._bytes)


def _dword(value):
    return struct.pack('<I', value)


def _assemble(spec):
    if spec.start % 4096 or not 0 <= spec.chunks <= MAX_CHUNKS:
        raise ValueError('start or chunks out of range')
    end = spec.start + spec.pages * 4096
    code = _Code()
    op, label = code.op, code.label

    # 16 bit
    op('fc')                            # cld
    op('31 c0')                         # xor  ax, ax
    op('8e d8')                         # mov  ds, ax
    op('8e c0')                         # mov  es, ax
    op('8e d0')                         # mov  ss, ax
    op('bc 00 7c')                      # mov  sp, 0x7c00
    if spec.chunks:
        # BIOS: dl is the boot drive, si points to what to read
        op('be', ('abs16', 'request'))  # mov  si, request
        op('b9', struct.pack('<H', spec.chunks))    # mov cx, chunks
        label('read')
        op('51')                        # push cx
        op('b4 42')                     # mov  ah, 0x42
        op('cd 13')                     # int  0x13
        op('72', ('rel8', 'unreadable'))  # jc unreadable
        op('66 83 06', ('abs16', 'request', 8), b'\x40')
        #                                 add  dword [sector], 64
        op('81 06', ('abs16', 'request', 6), b'\x00\x08')
        #                                 add  word [segment], 0x800
        op('59')                        # pop  cx
        op('e2', ('rel8', 'read'))      # loop read
    op('fa')                            # cli
    op('e4 92')                         # in   al, 0x92
    op('0c 02')                         # or   al, 2   A20 on
    op('24 fe')                         # and  al, ~1  no reset
    op('e6 92')                         # out  0x92, al
    op('0f 01 16', ('abs16', 'gdtr'))   # lgdt [gdtr]
    op('0f 20 c0')                      # mov  eax, cr0
    op('0c 01')                         # or   al, 1
    op('0f 22 c0')                      # mov  cr0, eax
    op('ea', ('abs16', 'protected'), b'\x08\x00')   # jmp 8:protected
    label('unreadable')
    op('ba f8 03')                      # mov  dx, COM1
    op('b0 45')                         # mov  al, 'E'
    op('ee')                            # out  dx, al
    op('fa f4')                         # cli; hlt
    op('eb fd')                         # jmp  to the hlt

    # 32 bit
    label('protected')
    op('66 b8 10 00')                   # mov  ax, 0x10
    op('8e d8')                         # mov  ds, ax
    op('8e c0')                         # mov  es, ax
    op('8e d0')                         # mov  ss, ax
    # KVM without unrestricted guests emulates each instruction for as
    # long as any segment register still has its real mode content
    op('8e e0')                         # mov  fs, ax
    op('8e e8')                         # mov  gs, ax
    op('bf', _dword(spec.start))        # mov  edi, start
    label('clear')
    op('c6 07 00')                      # mov  byte [edi], 0
    op('81 c7', _dword(4096))           # add  edi, 4096
    op('81 ff', _dword(end))            # cmp  edi, end
    op('72', ('rel8', 'clear'))         # jb   clear
    op('66 ba f8 03')                   # mov  dx, COM1
    op('b0 41')                         # mov  al, 'A'
    op('ee')                            # out  dx, al
    op('31 db')                         # xor  ebx, ebx  passes
    label('pass')
    if spec.chunks:
        op('31 c0')                     # xor  eax, eax
        op('be', _dword(LOAD))          # mov  esi, LOAD
        op('b9', _dword(spec.chunks * CHUNK // 4))  # mov ecx, dwords
        label('sum')
        op('03 06')                     # add  eax, [esi]
        op('d1 c0')                     # rol  eax, 1
        op('83 c6 04')                  # add  esi, 4
        op('49')                        # dec  ecx
        op('75', ('rel8', 'sum'))       # jnz  sum
        op('85 db')                     # test ebx, ebx  first pass?
        op('75 02')                     # jnz  over the next
        op('89 c5')                     # mov  ebp, eax
        op('39 e8')                     # cmp  eax, ebp
        op('75', ('rel8', 'corrupt'))   # jne  corrupt
    op('bf', _dword(spec.start))        # mov  edi, start
    label('page')
    op('38 1f')                         # cmp  [edi], bl
    op('75', ('rel8', 'corrupt'))       # jne  corrupt
    op('fe 07')                         # inc  byte [edi]
    op('81 c7', _dword(4096))           # add  edi, 4096
    op('81 ff', _dword(end))            # cmp  edi, end
    op('72', ('rel8', 'page'))          # jb   page
    op('43')                            # inc  ebx
    op('f7 c3', _dword(spec.report_every - 1))  # test ebx, mask
    op('75', ('rel8', 'silent'))        # jnz  silent
    op('66 ba f8 03')                   # mov  dx, COM1
    op('b0 42')                         # mov  al, 'B'
    op('ee')                            # out  dx, al
    label('silent')
    if spec.delay:
        op('b9', _dword(spec.delay))    # mov  ecx, delay
        label('wait')
        op('49')                        # dec  ecx
        op('75', ('rel8', 'wait'))      # jnz  wait
    op('eb', ('rel8', 'pass'))          # jmp  pass
    label('corrupt')
    op('66 ba f8 03')                   # mov  dx, COM1
    op('b0 58')                         # mov  al, 'X'
    op('ee')                            # out  dx, al
    op('f4')                            # hlt
    op('eb fd')                         # jmp  to the hlt

    # Data
    label('gdt')                        # none; code; data: flat, 32 bit
    op('00 00 00 00 00 00 00 00'
       'ff ff 00 00 00 9a cf 00'
       'ff ff 00 00 00 92 cf 00')
    label('gdtr')
    op('17 00', ('abs32', 'gdt'))
    label('request')                    # disk address packet
    op('10 00', struct.pack('<HHHQ', CHUNK // 512, 0, LOAD >> 4,
                            PAYLOAD_SECTOR))
    return code.link().ljust(510, b'\0') + b'\x55\xaa'
