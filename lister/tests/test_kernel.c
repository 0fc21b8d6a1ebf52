/* SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "btf_builder.h"
#include "kernel.h"

#include <elf.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#define TEST_GROUP "kernel"
#define PAGE 64                 /* bytes of a page structure */
#define DIRECT 0xffff8f0000000000ull
#define ARRAY 0xfffff1c280000000ull

static struct kernel k;
static Elf64_Phdr header[1024];
static unsigned count;
static uint64_t size;

static void segment(uint64_t address, uint64_t length, uint64_t physical)
{
    header[count++] = (Elf64_Phdr) {
        .p_type = PT_LOAD, .p_vaddr = address, .p_memsz = length,
        .p_filesz = length, .p_paddr = physical, .p_offset = (uint64_t)count << 40,
    };
}

/* A piece of memory as the kernel shows it: itself, and whole pages of the
 * array that describes it, less what was shown already. */
static void memory(uint64_t physical, uint64_t length)
{
    static uint64_t shown;
    uint64_t from = ARRAY + physical / size * PAGE / size * size;
    uint64_t to = ARRAY + (physical + length) / size * PAGE;

    if (!count) {
        shown = 0;
    }
    to = (to + size - 1) / size * size;
    segment(DIRECT + physical, length, physical);
    from = from < shown ? shown : from;
    segment(from, to - from, UINT64_MAX);
    shown = to;
}

static const char *parse(void)
{
    return kernel_parse_segments(&k, (uint8_t *)header,
                                 count * sizeof(header[0]), count, PAGE);
}

static void begin(void)
{
    size = sysconf(_SC_PAGESIZE);
    memset(header, 0, sizeof(header));
    count = 0;
}

static void text_and_modules(void)
{
    segment(0xffffffff9b000000ull, 0x3600000, 0x1b000000);
    segment(0xffffffffc0000000ull, 0x3f000000, UINT64_MAX);
    segment(0xffffb00000000000ull, 0x1fffffffffffull, UINT64_MAX);
}

/* A PC: below 640 KiB, below the hole, above 4 GiB */
static void a_pc(void)
{
    begin();
    memory(0x1000, 0x9e000);
    text_and_modules();
    memory(0x100000, 0xbfed0000);
    memory(0x100000000, 0x140000000);
    CHECK(!parse());
    CHECK(k.ram_count == 3);
    CHECK(k.pages == ARRAY);
    CHECK(k.ram[2].physical == 0x100000000);
}

static void one_piece(void)
{
    begin();
    memory(0x40000000, 0x20000000);
    text_and_modules();
    CHECK(!parse());
    CHECK(k.ram_count == 1 && k.pages == ARRAY);
}

static void without_array(void)
{
    begin();
    text_and_modules();
    segment(DIRECT, 0x40000000, 0);
    CHECK(parse() && k.ram_count == 1);
    begin();
    CHECK(parse());
}

/* Hundreds of pieces of one length, as memory is plugged in: any segment
 * of the array may describe any of them, and only one base fits all. */
static void plugged_memory(void)
{
    begin();
    text_and_modules();
    for (unsigned i = 0; i < 480; i++) {
        memory(UINT64_C(0x100000000) + i * UINT64_C(0x10000000), 0x8000000);
    }
    CHECK(!parse());
    CHECK(k.pages == ARRAY && k.ram_count == 480);
}

static void random_headers(void)
{
    for (int round = 0; round < 3000; round++) {
        uint8_t *p = (uint8_t *)header;

        begin();
        memory(0x1000, 0x9e000);
        memory(0x100000, 0xbfed0000);
        for (uint64_t n = below(12); n; n--) {
            p[below(count * sizeof(header[0]))] = rnd();
        }
        parse();
    }
}

/* Reads go to the right place of the file, and never beyond a segment. */
static void reads(void)
{
    char text[16] = "";
    char name[] = "/tmp/test-kernel-XXXXXX";
    uint64_t value;

    begin();
    segment(DIRECT, 0x40000000, 0);
    segment(ARRAY, 0x1000000, UINT64_MAX);
    CHECK(!parse());
    k.fd = mkstemp(name);
    CHECK(k.fd >= 0 && !unlink(name));
    k.ram[0].offset = 0;
    k.other[0].offset = 4096;
    CHECK(pwrite(k.fd, "memory", 7, 100) == 7);
    CHECK(pwrite(k.fd, "pages", 6, 4096 + 64) == 6);
    CHECK(kernel_read(&k, DIRECT + 100, text, 7) && !strcmp(text, "memory"));
    CHECK(kernel_read(&k, ARRAY + 64, text, 6) && !strcmp(text, "pages"));
    CHECK(kernel_read_physical(&k, 100, text, 7) && !strcmp(text, "memory"));
    CHECK(!kernel_read_physical(&k, 0x40000000, text, 1));
    CHECK(!kernel_read(&k, DIRECT - 1, &value, 8));
    CHECK(!kernel_read(&k, DIRECT + 0x40000000 - 7, &value, 8));
    CHECK(!kernel_read(&k, 0, &value, 8));
    CHECK(!kernel_read(&k, UINT64_MAX - 3, &value, 8));
    kernel_close(&k);
}

/* Of the machine this runs on, if its kernel has it */
static void own_layout(void)
{
    struct budget budget = { .memory_limit = 64 << 20 };
    struct kernel_layout l;
    static uint8_t data[32 << 20];
    int fd = open("/sys/kernel/btf/vmlinux", O_RDONLY);
    size_t length = 0;
    ssize_t got;

    if (fd < 0) {
        printf("# this kernel has no BTF\n");
        return;
    }
    while ((got = read(fd, data + length, sizeof(data) - length)) > 0) {
        length += got;
    }
    close(fd);
    CHECK(!layout_parse(&l, data, length, &budget));
    CHECK(l.page_size >= 56 && l.page_flags == 0 && l.page_head == 8);
    CHECK(l.page_mapping == 24 && l.inode_mode == 0);
    CHECK(l.uptodate && l.dirty && l.writeback && l.has_private);
    CHECK(!budget.memory);
}

static void btrfs_types(struct builder *m, uint32_t inode, uint32_t size)
{
    uint32_t number, key, root, pointer;

    number = type(m, B_INT, "unsigned long long", 0, 8);
    put32(m, 64);
    key = type(m, B_STRUCT, "btrfs_key", 2, 17);
    member_of(m, "type", number, 8);
    member_of(m, "objectid", number, 0);
    root = type(m, B_STRUCT, "btrfs_root", 2, 500);
    member_of(m, "node", number, 0);
    member_of(m, "root_key", key, 300);
    pointer = type(m, B_POINTER, NULL, 0, root);
    type(m, B_STRUCT, "btrfs_inode", 2, size);
    member_of(m, "root", pointer, 16);
    member_of(m, "vfs_inode", inode, 200);
    finish(m);
}

/* The module's structures, which have the kernel's inode in them; all in the
 * kernel; none at all; too little memory */
static void btrfs_layout(void)
{
    struct budget budget = { .memory_limit = 64 << 20 };
    struct kernel_layout l = { .inode_size = 600 };
    static struct builder b, m;
    uint32_t inode;

    builder_init(&b);
    inode = type(&b, B_STRUCT, "inode", 0, 600);
    finish(&b);
    builder_continue(&m, &b);
    btrfs_types(&m, inode, 1000);
    CHECK(!layout_parse_btrfs(&l, b.data, b.length, m.data, m.length,
                              &budget));
    CHECK(l.btrfs_inode == 200 && l.btrfs_root == 16 &&
          l.btrfs_root_id == 300);
    CHECK(layout_parse_btrfs(&l, b.data, b.length, NULL, 0, &budget));
    CHECK(layout_parse_btrfs(&l, b.data, b.length, m.data, 3, &budget));
    CHECK(!budget.memory && !budget.ended);
    budget.memory_limit = 4;
    CHECK(layout_parse_btrfs(&l, b.data, b.length, m.data, m.length,
                             &budget) && !budget.ended);
    budget.memory_limit = 64 << 20;
    builder_continue(&m, &b);
    btrfs_types(&m, inode, 700);
    CHECK(layout_parse_btrfs(&l, b.data, b.length, m.data, m.length,
                             &budget));
    l.btrfs_inode = 0;
    btrfs_types(&b, inode, 1000);
    CHECK(!layout_parse_btrfs(&l, b.data, b.length, NULL, 0, &budget));
    CHECK(l.btrfs_inode == 200);
}

static void no_layout(void)
{
    struct budget budget = { .memory_limit = 64 << 20 };
    struct kernel_layout l;
    static struct builder b;

    builder_init(&b);
    type(&b, B_STRUCT, "page", 0, 64);
    finish(&b);
    CHECK(layout_parse(&l, b.data, b.length, &budget));
    CHECK(layout_parse(&l, b.data, 3, &budget));
    budget.memory_limit = 4;
    CHECK(layout_parse(&l, b.data, b.length, &budget));
}

static void folios(void)
{
    uint64_t first = ARRAY + 512 * PAGE, tail = first + 5 * PAGE;

    k.pages = ARRAY;
    CHECK(kernel_folio(&k, tail, 0) == tail);
    CHECK(kernel_folio(&k, tail, first) == tail);       /* no bit 0 */
    CHECK(kernel_folio(&k, tail, first | 1) == first);
    /* Eight page structures of a folio, and five hundred and twelve */
    CHECK(kernel_folio(&k, tail, ~(8ull * PAGE - 1) | 1) == first);
    CHECK(kernel_folio(&k, first + 511 * PAGE, ~(512ull * PAGE - 1) | 1) ==
          first);
    /* Neither: something, but no tail's own head */
    CHECK(kernel_folio(&k, tail, (tail + PAGE) | 1) != tail);
}

int main(void)
{
    RUN(a_pc);
    RUN(one_piece);
    RUN(without_array);
    RUN(plugged_memory);
    RUN(random_headers);
    RUN(reads);
    RUN(own_layout);
    RUN(no_layout);
    RUN(btrfs_layout);
    RUN(folios);
    return test_status;
}
