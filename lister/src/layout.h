/* SPDX-License-Identifier: Apache-2.0 */
/* Where the members of the kernel's structures of the page cache lie (BTF) */
#ifndef LAYOUT_H
#define LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "budget.h"

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

/*
 * That of the running kernel.  NULL when all is well, else in a few words why
 * not.  `btrfs`: its inodes are wanted as well; *no_btrfs: why they cannot be
 * told, NULL: they can
 */
const char *layout_read(struct kernel_layout *layout, bool btrfs,
                        const char **no_btrfs, struct budget *b);

/* Parts, for tests */
const char *layout_parse(struct kernel_layout *layout, const uint8_t *btf,
                         size_t length, struct budget *b);
/* `module`: BTF of the module btrfs; NULL: there is none, btrfs may be in the
 * kernel itself */
const char *layout_parse_btrfs(struct kernel_layout *layout,
                               const uint8_t *btf, size_t length,
                               const uint8_t *module, size_t module_length,
                               struct budget *b);

#endif
