/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "layout.h"

#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "btf.h"

#define MAX_BTF (UINT64_C(64) << 20)
#define NO_MEMORY "BTF needs more memory than may be used"

/* BH_JBDDirty, from BH_PrivateStart: changed in a transaction that has not
 * been written.  The journal may be a module, which BTF shows elsewhere. */
#define BH_JBD_DIRTY 5

static const struct wanted {
    const char *structure, *member, *other;     /* other: a newer name */
    size_t offset;                              /* in kernel_layout */
} wanted[] = {
#define WANT(s, m, o, field) { s, m, o, offsetof(struct kernel_layout, field) }
    WANT("page", "flags", NULL, page_flags),
    WANT("page", "mapping", NULL, page_mapping),
    WANT("page", "index", "__folio_index", page_index),
    WANT("page", "compound_head", "compound_info", page_head),
    WANT("page", "private", NULL, page_private),
    WANT("inode", "i_mode", NULL, inode_mode),
    WANT("inode", "i_ino", NULL, inode_ino),
    WANT("inode", "i_rdev", NULL, inode_rdev),
    WANT("inode", "i_sb", NULL, inode_sb),
    WANT("inode", "i_generation", NULL, inode_generation),
    WANT("inode", "i_data", NULL, inode_data),
    WANT("address_space", "host", NULL, mapping_host),
    WANT("super_block", "s_dev", NULL, sb_dev),
    WANT("super_block", "s_magic", NULL, sb_magic),
    WANT("buffer_head", "b_state", NULL, buffer_state),
    WANT("buffer_head", "b_this_page", NULL, buffer_next),
#undef WANT
};

static bool flag(struct btf *btf, const char *name, uint64_t *mask)
{
    int32_t bit;

    if (!btf_constant(btf, "pageflags", name, &bit) || bit < 0 || bit > 63) {
        return false;
    }
    *mask |= UINT64_C(1) << bit;
    return true;
}

/* `more`: so many bits behind the constant */
static bool buffer_flag(struct btf *btf, const char *name, int more,
                        uint64_t *mask)
{
    int32_t bit;

    if (!btf_constant(btf, "bh_state_bits", name, &bit) || bit < 0 ||
        bit + more > 63) {
        return false;
    }
    *mask |= UINT64_C(1) << (bit + more);
    return true;
}

static const char *layout_of(struct kernel_layout *l, struct btf *btf)
{
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        const struct wanted *w = &wanted[i];
        struct btf_member found = { UINT32_MAX, 0 };

        if (!btf_member(btf, w->structure, w->member, &found) &&
            !(w->other && btf_member(btf, w->structure, w->other, &found))) {
            return "BTF does not show a structure of the page cache";
        }
        memcpy((char *)l + w->offset, &found.offset, sizeof(uint32_t));
    }
    l->page_size = btf_size(btf, "page");
    l->inode_size = btf_size(btf, "inode");
    if (l->page_size < 32 || l->page_size > 256 || l->page_size % 8 ||
        l->inode_size > 2048 || l->page_flags + 8 > l->page_size ||
        l->page_mapping + 8 > l->page_size ||
        l->page_index + 8 > l->page_size || l->page_head + 8 > l->page_size ||
        l->inode_data + l->mapping_host + 8 > l->inode_size ||
        l->inode_mode + 2 > l->inode_size || l->inode_ino + 8 > l->inode_size ||
        l->inode_rdev + 4 > l->inode_size || l->inode_sb + 8 > l->inode_size ||
        l->inode_generation + 4 > l->inode_size) {
        return "BTF shows an unknown structure of the page cache";
    }
    if (!flag(btf, "PG_uptodate", &l->uptodate) ||
        !flag(btf, "PG_dirty", &l->dirty) ||
        !flag(btf, "PG_writeback", &l->writeback) ||
        !flag(btf, "PG_swapbacked", &l->not_file)) {
        return "BTF does not show the flags of pages";
    }
    /* Newer kernels have some of these no more. */
    flag(btf, "PG_slab", &l->not_file);
    flag(btf, "PG_reserved", &l->not_file);
    flag(btf, "PG_hwpoison", &l->not_file);
    flag(btf, "PG_private", &l->has_private);
    if (!buffer_flag(btf, "BH_Uptodate", 0, &l->buffer_uptodate) ||
        !buffer_flag(btf, "BH_Dirty", 0, &l->buffer_changed) ||
        !buffer_flag(btf, "BH_Lock", 0, &l->buffer_changed) ||
        !buffer_flag(btf, "BH_PrivateStart", BH_JBD_DIRTY,
                     &l->buffer_changed) ||
        !l->has_private || l->page_private + 8 > l->page_size) {
        return "BTF does not show buffers";
    }
    return NULL;
}

const char *layout_parse(struct kernel_layout *layout, const uint8_t *data,
                         size_t length, struct budget *b)
{
    uint32_t room = btf_room(data, length);
    size_t bytes = (2 * (size_t)room + 1) * sizeof(uint32_t);
    const char *why = "BTF cannot be read";
    struct btf btf;
    uint32_t *index;

    memset(layout, 0, sizeof(*layout));
    if (!room) {
        return why;
    }
    index = budget_alloc(b, bytes);
    if (!index) {
        return NO_MEMORY;
    }
    if (btf_open(&btf, data, length, index)) {
        why = layout_of(layout, &btf);
    }
    budget_free(b, index, bytes);
    return why;
}

static const char *btrfs_layout(struct kernel_layout *l, struct btf *btf)
{
    struct btf_member inode, root, key, id;

    if (!btf_member(btf, "btrfs_inode", "vfs_inode", &inode) ||
        !btf_member(btf, "btrfs_inode", "root", &root) ||
        !btf_member(btf, "btrfs_root", "root_key", &key) ||
        !btf_member(btf, "btrfs_key", "objectid", &id)) {
        return "the kernel has no BTF of btrfs";
    }
    if (inode.size != l->inode_size || root.size != sizeof(uint64_t) ||
        id.size != sizeof(uint64_t) ||
        (uint64_t)inode.offset + l->inode_size >
            btf_size(btf, "btrfs_inode") ||
        (uint64_t)root.offset + 8 > btf_size(btf, "btrfs_inode") ||
        (uint64_t)key.offset + id.offset + 8 > btf_size(btf, "btrfs_root")) {
        return "BTF shows unknown structures of btrfs";
    }
    l->btrfs_inode = inode.offset;
    l->btrfs_root = root.offset;
    l->btrfs_root_id = key.offset + id.offset;
    return NULL;
}

const char *layout_parse_btrfs(struct kernel_layout *layout,
                               const uint8_t *data, size_t length,
                               const uint8_t *module, size_t module_length,
                               struct budget *b)
{
    size_t room = btf_room(data, length);
    size_t more = module ? btf_room(module, module_length) : 0;
    size_t bytes = (2 * room + 1 + 2 * more + 1) * sizeof(uint32_t);
    const char *why = "BTF of btrfs cannot be read";
    struct btf kernel, btrfs;
    uint32_t *index;

    if (!room || (module && !more)) {
        return why;
    }
    /* Too little memory for btrfs is enough for others. */
    index = bytes <= budget_left(b) ? budget_alloc(b, bytes) : NULL;
    if (!index) {
        return NO_MEMORY;
    }
    if (btf_open(&kernel, data, length, index)) {
        if (!module) {
            why = btrfs_layout(layout, &kernel);
        } else if (btf_open_module(&btrfs, &kernel, module, module_length,
                                   index + 2 * room + 1)) {
            why = btrfs_layout(layout, &btrfs);
        }
    }
    budget_free(b, index, bytes);
    return why;
}

/* NULL: see `why` */
static uint8_t *read_btf(const char *path, size_t *length, struct budget *b,
                         const char **why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    uint8_t *data = NULL;
    off_t at = 0;

    if (fd < 0) {
        *why = "the kernel has no BTF";
        return NULL;
    }
    *why = "BTF cannot be read";
    if (size > 0 && size <= (off_t)MAX_BTF) {
        data = (size_t)size <= budget_left(b) ? budget_alloc(b, size) : NULL;
        *why = data ? *why : NO_MEMORY;
    }
    while (data && at < size) {
        ssize_t got = pread(fd, data + at, size - at, at);

        if (got <= 0) {
            budget_free(b, data, size);
            data = NULL;
        }
        at += got;
    }
    close(fd);
    *length = size;
    return data;
}

static const char *read_btrfs(struct kernel_layout *l, const uint8_t *data,
                              size_t length, struct budget *b)
{
    static const char path[] = "/sys/kernel/btf/btrfs";
    size_t module_length = 0;
    uint8_t *module = NULL;
    const char *why = NULL;

    /* Not there if btrfs is no module, or modules have no BTF (5.10) */
    if (!access(path, F_OK)) {
        module = read_btf(path, &module_length, b, &why);
        if (!module) {
            return why;
        }
    }
    why = layout_parse_btrfs(l, data, length, module, module_length, b);
    budget_free(b, module, module_length);
    return why;
}

const char *layout_read(struct kernel_layout *l, bool btrfs,
                        const char **no_btrfs, struct budget *b)
{
    const char *why;
    size_t length;
    uint8_t *data = read_btf("/sys/kernel/btf/vmlinux", &length, b, &why);

    if (!data) {
        return why;
    }
    why = layout_parse(l, data, length, b);
    *no_btrfs = "not asked for";
    if (!why && btrfs) {
        *no_btrfs = read_btrfs(l, data, length, b);
    }
    budget_free(b, data, length);
    return why;
}
