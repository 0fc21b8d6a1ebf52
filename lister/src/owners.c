/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "owners.h"

#include <string.h>
#include <sys/stat.h>

#include "bytes.h"

/* The kernel's own dev_t: 12 bits of major, 20 of minor */
#define KERNEL_MAJOR(d) ((d) >> 20)
#define KERNEL_MINOR(d) ((d) & 0xfffff)
/* Of the inode whose pages are the blocks of btrfs's trees */
#define BTRFS_TREE_INODE 1

bool owners_init(struct owners *o, struct budget *b, size_t bytes)
{
    memset(o, 0, sizeof(*o));
    o->slots = 1024;
    while ((uint64_t)o->slots * 2 * (sizeof(uint32_t) +
                                     sizeof(struct owner) / 2) <= bytes &&
           o->slots < 1u << 30) {
        o->slots *= 2;
    }
    /* Half full at most, so that a search is short */
    o->room = o->slots / 2;
    o->owner = budget_alloc(b, o->room * sizeof(struct owner));
    o->hash = budget_alloc(b, o->slots * sizeof(uint32_t));
    o->last = UINT32_MAX;
    return o->owner && o->hash;
}

void owners_clear(struct owners *o)
{
    memset(o->owner, 0, o->count * sizeof(struct owner));
    memset(o->hash, 0, o->slots * sizeof(uint32_t));
    o->count = 0;
    o->last = UINT32_MAX;
}

static bool super(struct owners *o, const struct kernel *k, uint64_t address,
                  uint64_t *magic, uint32_t *device)
{
    for (unsigned i = 0; i < o->supers; i++) {
        if (o->super[i].address == address) {
            *magic = o->super[i].magic;
            *device = o->super[i].device;
            return true;
        }
    }
    if (!kernel_read(k, address + k->layout.sb_magic, magic, 8) ||
        !kernel_read(k, address + k->layout.sb_dev, device, 4)) {
        return false;
    }
    if (o->supers < OWNERS_MAX_SUPERS) {
        o->super[o->supers].address = address;
        o->super[o->supers].magic = *magic;
        o->super[o->supers++].device = *device;
    }
    return true;
}

/* The number of the subvolume of an inode of btrfs, 0: it cannot be read.
 * struct btrfs_inode is around the inode. */
static uint64_t subvolume(const struct kernel *k, uint64_t inode)
{
    const struct kernel_layout *l = &k->layout;
    uint64_t root, id;

    return kernel_read(k, inode - l->btrfs_inode + l->btrfs_root, &root, 8) &&
           kernel_read(k, root + l->btrfs_root_id, &id, 8) ? id : 0;
}

/* Leaves the kind OWNER_INVALID unless all is as it must be */
static void load(struct owners *o, const struct kernel *k,
                 struct owner *owner)
{
    const struct kernel_layout *l = &k->layout;
    uint64_t address = owner->mapping - l->inode_data;
    uint32_t device = 0, special;
    uint8_t inode[2048];
    uint16_t mode;

    if (owner->mapping % 8 || owner->mapping < l->inode_data ||
        !kernel_read(k, address, inode, l->inode_size) ||
        u64(inode + l->inode_data + l->mapping_host) != address ||
        !super(o, k, u64(inode + l->inode_sb), &owner->magic, &device)) {
        return;
    }
    memcpy(&mode, inode + l->inode_mode, 2);
    owner->mode = mode;
    owner->ino = u64(inode + l->inode_ino);
    owner->generation = u32(inode + l->inode_generation);
    special = u32(inode + l->inode_rdev);
    if (owner->magic == MAGIC_BDEV) {
        if (S_ISBLK(mode)) {
            owner->kind = OWNER_DEVICE;
            device = special;
        }
    } else if (owner->magic == MAGIC_BTRFS && !mode) {
        owner->kind = owner->ino == BTRFS_TREE_INODE ? OWNER_TREE :
                      OWNER_NO_DISK;
    } else {
        bool network;

        if (owner->magic == MAGIC_BTRFS && !k->no_btrfs) {
            owner->root = subvolume(k, address);
        }
        /* Without a device: of the kinds that are known, some have one.
         * Without a mode: what a file system keeps in memory only. */
        owner->kind = mode && (KERNEL_MAJOR(device) ||
                               owner_file_system(owner->magic, &network)) ?
                      OWNER_FILE : OWNER_NO_DISK;
    }
    owner->major = KERNEL_MAJOR(device);
    owner->minor = KERNEL_MINOR(device);
}

/* Where the owner's number is in the hash table, or would be */
static uint32_t *slot_of(struct owners *o, uint64_t mapping)
{
    uint32_t slot = (mapping * UINT64_C(0x9e3779b97f4a7c15)) >> 32 &
                    (o->slots - 1);

    while (o->hash[slot] &&
           o->owner[o->hash[slot] - 1].mapping != mapping) {
        slot = (slot + 1) & (o->slots - 1);
    }
    return &o->hash[slot];
}

uint32_t owners_find(struct owners *o, const struct kernel *k,
                     uint64_t mapping)
{
    uint32_t *slot;

    if (o->last != UINT32_MAX && o->owner[o->last].mapping == mapping) {
        return o->last;
    }
    slot = slot_of(o, mapping);
    if (!*slot) {
        if (o->count == o->room) {
            return UINT32_MAX;
        }
        *slot = ++o->count;
        o->owner[*slot - 1].mapping = mapping;
        load(o, k, &o->owner[*slot - 1]);
    }
    return o->last = *slot - 1;
}

uint32_t owners_add(struct owners *o, const struct owner *owner)
{
    uint32_t *slot = slot_of(o, owner->mapping);

    if (*slot || o->count == o->room) {
        return UINT32_MAX;
    }
    *slot = ++o->count;
    o->owner[*slot - 1] = *owner;
    return *slot - 1;
}

const char *owner_file_system(uint64_t magic, bool *network)
{
    static const struct {
        uint64_t magic;
        const char *name;
        bool network;
    } known[] = {
        { MAGIC_EXT, "ext4", false },
        { MAGIC_XFS, "xfs", false },
        { MAGIC_BTRFS, "btrfs", false },
        { 0xca451a4e, "bcachefs", false },
        { 0xf2f52010, "f2fs", false },
        { 0x2fc12fc1, "zfs", false },
        { 0x794c7630, "overlay", false },
        { 0x73717368, "squashfs", false },
        { 0xe0f5e1e2, "erofs", false },
        { 0x9660, "iso9660", false },
        { 0x15013346, "udf", false },
        { 0x4d44, "vfat", false },
        { 0x2011bab0, "exfat", false },
        { 0x7366746e, "ntfs3", false },
        { 0x3153464a, "jfs", false },
        { 0x52654973, "reiserfs", false },
        { 0x6969, "nfs", true },
        { 0xff534d42, "cifs", true },
        { 0xfe534d42, "smb", true },
        { 0x00c36400, "ceph", true },
        { 0x65735546, "fuse", true },
        { 0x6a656a63, "virtiofs", true },
        { 0x01021997, "9p", true },
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        if (known[i].magic == magic) {
            *network = known[i].network;
            return known[i].name;
        }
    }
    return NULL;
}
