/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the running kernel's memory, /proc/kcore, by virtual address, and
 * knows where the structures of the page cache lie (from BTF).
 *
 * What is read changes meanwhile, and nothing is locked: what comes of it
 * is a guess, as all the host gets from a guest.
 */
#ifndef KERNEL_H
#define KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"

#define KERNEL_MAX_SEGMENTS 512

struct kernel_segment {
    uint64_t address, length, physical, offset;   /* offset: in the file */
};

/* Offsets of members, bytes */
struct kernel_layout {
    uint32_t page_size;         /* of struct page */
    uint32_t page_flags, page_mapping, page_index, page_head, page_private;
    uint32_t inode_size, inode_mode, inode_ino, inode_rdev, inode_sb;
    uint32_t inode_generation, inode_data;
    uint32_t mapping_host;      /* in struct address_space */
    uint32_t sb_dev, sb_magic;
    uint32_t buffer_state, buffer_next;
    uint64_t uptodate, dirty, writeback, not_file;  /* masks of page flags */
    uint64_t has_private;
    uint64_t buffer_uptodate, buffer_changed;       /* of buffer heads */
    uint32_t btrfs_inode, btrfs_root;   /* in struct btrfs_inode */
    uint32_t btrfs_root_id;             /* in struct btrfs_root */
};

struct kernel {
    int fd;
    unsigned ram_count, other_count;
    struct kernel_segment ram[KERNEL_MAX_SEGMENTS];     /* by address */
    struct kernel_segment other[KERNEL_MAX_SEGMENTS];
    uint64_t pages;             /* address of the page structure of page 0 */
    struct kernel_layout layout;
    const char *no_btrfs;       /* why inodes of btrfs cannot be told */
};

/* NULL when all is well, else in a few words why this cannot be used.
 * `btrfs`: its inodes are wanted as well */
const char *kernel_open(struct kernel *k, bool btrfs, struct budget *b);
void kernel_close(struct kernel *k);
/* False: not all of it could be read */
bool kernel_read(const struct kernel *k, uint64_t address, void *into,
                 size_t length);
/* By guest-physical address */
bool kernel_read_physical(const struct kernel *k, uint64_t address,
                          void *into, size_t length);
/*
 * The address of the head of a folio, for the page structure at `page` whose
 * member page_head (compound_head, compound_info) is `head`; `page` itself
 * where it is no tail.  A tail has bit 0 set.  The rest is the head's address,
 * or since Linux 7 a mask that makes it of the tail's (where page structures
 * lie at multiples of the size of all structures of a folio).
 */
uint64_t kernel_folio(const struct kernel *k, uint64_t page, uint64_t head);

/* Parts, for tests */
const char *kernel_parse_layout(struct kernel_layout *layout,
                                const uint8_t *btf, size_t length,
                                struct budget *b);
/* `module`: BTF of the module btrfs; NULL: there is none, btrfs may be in the
 * kernel itself */
const char *kernel_parse_btrfs(struct kernel_layout *layout,
                               const uint8_t *btf, size_t length,
                               const uint8_t *module, size_t module_length,
                               struct budget *b);
/* The program headers of /proc/kcore, whole */
const char *kernel_parse_segments(struct kernel *k, const uint8_t *headers,
                                  size_t size, unsigned count,
                                  uint32_t struct_page);

#endif
