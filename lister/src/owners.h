/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a page of the page cache is: the inode behind its address_space.
 *
 *   page.mapping -> inode.i_data; inode.i_data.host == inode proves that it
 *   is one; inode.i_sb -> super_block: which file system, on which device
 */
#ifndef OWNERS_H
#define OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "budget.h"
#include "kernel.h"

enum owner_kind {
    OWNER_INVALID,              /* not an inode */
    OWNER_NO_DISK,              /* tmpfs and the like */
    OWNER_FILE,
    OWNER_DEVICE,               /* a block device's own cache */
    OWNER_TREE,                 /* btrfs's own, by logical addresses */
};

struct owner {
    uint64_t mapping, ino;
    uint64_t root;              /* btrfs: of the subvolume; 0: not known */
    uint64_t magic;             /* of the file system */
    uint32_t generation;
    uint32_t first, runs;       /* in the order of scan.h */
    unsigned major, minor;      /* of the file system; of the device */
    uint16_t mode;
    uint8_t kind;
};

#define OWNERS_MAX_SUPERS 256

struct owners {
    struct owner *owner;
    uint32_t *hash;             /* index + 1, 0: free */
    uint32_t count, room, slots;        /* slots: a power of two */
    uint32_t last;              /* found last; UINT32_MAX: none */
    unsigned supers;
    struct { uint64_t address, magic; uint32_t device; }
        super[OWNERS_MAX_SUPERS];
};

bool owners_init(struct owners *o, struct budget *b, size_t bytes);
void owners_clear(struct owners *o);
/* Index of the owner, kind OWNER_INVALID included; UINT32_MAX: no room */
uint32_t owners_find(struct owners *o, const struct kernel *k,
                     uint64_t mapping);

/* Another owner, found otherwise; `mapping` is what tells it apart.
 * UINT32_MAX: it is there already, or no room */
uint32_t owners_add(struct owners *o, const struct owner *owner);

#define MAGIC_EXT   0xef53
#define MAGIC_XFS   0x58465342
#define MAGIC_BTRFS 0x9123683e
#define MAGIC_BDEV  0x62646576
/* What a file system is called; NULL: one that has no data on disks, or
 * nobody knows it */
const char *owner_file_system(uint64_t magic, bool *network);

#endif
