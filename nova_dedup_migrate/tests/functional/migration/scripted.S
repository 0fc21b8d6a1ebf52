/* SPDX-License-Identifier: Apache-2.0
 *
 * A guest that does what it is told, one step at a time; see scripted.py.
 * A boot sector in real mode: it needs no kernel and runs where only 16 and
 * 32 bit guests can.
 *
 * Commands come over COM2, 10 bytes: operation, argument, segment and offset
 * of a page (16 bit each), number (32 bit).  Each is answered by '!' or, if the disk
 * refuses, by '?'.  Between commands it fills the pages of a window with noise,
 * over and over: the hum.
 */
        .intel_syntax noprefix
        .code16
        .text
        .globl  _start

        .set    COM2, 0x2f8

_start:
        cld
        xor     ax, ax
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     sp, 0x7c00
        sti
        mov     al, '!'                 /* there we are */
        call    put

idle:
        mov     dx, COM2 + 5
        in      al, dx
        test    al, 1
        jnz     command
        mov     bx, [hum_at]
        mov     cx, [hum_pages]
        jcxz    idle
1:
        mov     es, bx
        xor     di, di
        mov     eax, [noise]
        mov     bp, [hum_words]
2:
        imul    eax, eax, 1664525
        add     eax, 1013904223
        stosd
        dec     bp
        jnz     2b
        mov     [noise], eax
        add     bx, 0x100
        loop    1b
        jmp     idle

command:
        mov     di, offset buffer
        mov     cx, 10
1:
        call    get
        mov     [di], al
        inc     di
        loop    1b
        mov     es, [segment]
        mov     al, [operation]
        cmp     al, 'r'
        je      read
        cmp     al, 'w'
        je      write
        cmp     al, 'f'
        je      fill
        cmp     al, 'p'
        je      poke
        cmp     al, 'h'
        je      hum
done:
        mov     al, '!'
        jc      failed
        call    put
        jmp     idle
failed:
        mov     al, '?'
        call    put
        jmp     idle

/* Page from or to sector [number] of drive [argument] */
read:
        mov     ah, 0x42
        jmp     disk
write:
        mov     ax, 0x4300
disk:
        mov     bx, [segment]
        mov     [packet_segment], bx
        mov     bx, [offset_]
        mov     [packet_offset], bx
        mov     ebx, [number]
        mov     [packet_sector], ebx
        mov     dl, [argument]
        mov     si, offset packet
        int     0x13
        jmp     done

/* Page full of [argument] */
fill:
        mov     al, [argument]
        mov     di, [offset_]
        mov     cx, 4096
        rep     stosb
        clc
        jmp     done

/* Byte [number] of the page */
poke:
        mov     di, [offset_]
        add     di, [number]
        mov     al, [argument]
        mov     es:[di], al
        clc
        jmp     done

/* Window of [argument] pages, [number] double words of each */
hum:
        mov     ax, [number]
        mov     [hum_words], ax
        mov     ax, [segment]
        mov     [hum_at], ax
        movzx   ax, byte ptr [argument]
        mov     [hum_pages], ax
        clc
        jmp     done

get:
        mov     dx, COM2 + 5
1:
        in      al, dx
        test    al, 1
        jz      1b
        mov     dx, COM2
        in      al, dx
        ret

put:
        mov     ah, al
        mov     dx, COM2 + 5
1:
        in      al, dx
        test    al, 0x20
        jz      1b
        mov     dx, COM2
        mov     al, ah
        out     dx, al
        ret

        .balign 4
packet:                                 /* disk address packet, 8 sectors */
        .word   16, 8
packet_offset:
        .word   0
packet_segment:
        .word   0
packet_sector:
        .long   0, 0
hum_at:
        .word   0
hum_pages:
        .word   0
hum_words:
        .word   0
noise:
        .long   1
buffer:
operation:
        .byte   0
argument:
        .byte   0
segment:
        .word   0
offset_:
        .word   0
number:
        .long   0

        .org    510
        .word   0xaa55
