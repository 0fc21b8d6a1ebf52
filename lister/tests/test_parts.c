/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the kernel: mounts, addresses, tables; and sorting */
#include "test.h"
#include "disks.h"
#include "identity.h"
#include "mapper.h"
#include "mounts.h"
#include "resolve.h"

#include <limits.h>
#include <linux/dm-ioctl.h>

#define TEST_GROUP "parts"

static char where[PATH_MAX];

static void mountinfo(void)
{
    struct mount m;

    CHECK(mounts_parse("36 35 254:17 / /mnt/my\\040disk rw,noatime "
                       "master:1 - ext4 /dev/vdb1 rw\n", &m, where));
    CHECK(m.id == 36 && m.major == 254 && m.minor == 17 && !strcmp(m.type, "ext4") &&
          !strcmp(where, "/mnt/my disk"));
    CHECK(mounts_parse("1 1 0:2 / / rw - rootfs rootfs rw", &m, where));
    CHECK(!strcmp(where, "/") && !mounts_can_map(m.type));
    CHECK(!mounts_parse("1 1 0:2 / / rw rootfs", &m, where));
    CHECK(!mounts_parse("1 1 x:2 / / rw - ext4 a rw", &m, where));
    CHECK(!mounts_parse("", &m, where));
    CHECK(!mounts_parse(" - ext4", &m, where));
}

static bool found(const struct mounts *m, unsigned minor)
{
    return mounts_of(m, 8, minor) != NULL;
}

/* What is below a remote mount may hang when it is opened, what is below a
 * trigger of autofs does not. */
static void layers(void)
{
    static char text[1 << 16];
    static struct mounts m;
    size_t length = 0;
    FILE *info;

    length += snprintf(text, sizeof(text),
        "20 1 0:40 / /auto rw - autofs systemd-1 rw\n"
        "21 20 8:1 / /auto/disk rw - ext4 /dev/sda1 rw\n"
        "22 1 8:2 / /near rw - xfs /dev/sda2 rw\n");
    for (int i = 0; i < 300; i++) {
        length += snprintf(text + length, sizeof(text) - length,
                           "%d 1 0:%d / /far%d rw - nfs4 server:/%d rw\n",
                           100 + i, 100 + i, i, i);
    }
    snprintf(text + length, sizeof(text) - length,
        "500 399 8:3 / /far299/disk rw - ext4 /dev/sda3 rw\n"
        "501 1 8:4 / /far29 rw - ext4 /dev/sda4 rw\n"
        "502 1 8:5 / /far299x rw - ext4 /dev/sda5 rw\n"
        "503 1 0:60 / /sshfs rw - fuse.sshfs server: rw\n"
        "504 503 8:6 / /sshfs/disk rw - btrfs /dev/sda6 rw\n"
        "505 1 8:2 /part /again rw - xfs /dev/sda2 rw\n");
    info = fmemopen(text, strlen(text), "r");
    mounts_read(&m, info);
    fclose(info);
    CHECK(found(&m, 1) && found(&m, 2) && found(&m, 5));
    /* /far29 is a remote mount itself, which something was mounted over. */
    CHECK(!found(&m, 3) && !found(&m, 4) && !found(&m, 6));
    CHECK(m.count == 3);
}

static void long_mount(void)
{
    static char line[3 * PATH_MAX];
    struct mount m;

    strcpy(line, "1 1 8:1 / /");
    memset(line + strlen(line), 'x', 2 * PATH_MAX);
    strcat(line, " rw - ext4 a rw");
    CHECK(!mounts_parse(line, &m, where));
}

static void pci_path(void)
{
    struct listing_disk d = { 0 };

    CHECK(identity_pci("/sys/devices/pci0000:00/0000:00:02.3/0000:05:1f.7/"
                       "virtio3/block/vda", &d));
    CHECK(d.steps == 2 && d.path[0] == (2 << 3 | 3) && d.path[1] == 0xff &&
          d.pci_bus == 5 && d.root == 0 && d.domain == 0 &&
          d.flags == LISTING_DISK_PCI);
    d = (struct listing_disk) { 0 };
    CHECK(identity_pci("/sys/devices/pci0001:80/0001:80:1c.0/ata1/block/sda",
                       &d) && d.root == 0x80 && d.domain == 1 &&
          d.steps == 1);
    CHECK(!identity_pci("/sys/devices/virtual/block/dm-0", &d));
    CHECK(!identity_pci("/sys/devices/pci0000:00/virtio0", &d));
    CHECK(!identity_pci("/sys/devices/platform/a000000.virtio_mmio/virtio1",
                        &d));
}

static uint8_t table[4096] __attribute__((aligned(8)));
static uint32_t used;

static void target(const char *type, uint64_t start, uint64_t sectors,
                   const char *text)
{
    struct dm_ioctl *io = (void *)table;
    struct dm_target_spec *spec = (void *)(table + used);
    uint32_t room = sizeof(*spec) + (strlen(text) + 8) / 8 * 8;

    *spec = (struct dm_target_spec) {
        .sector_start = start, .length = sectors,
        .next = used + room - sizeof(*io),
    };
    strcpy(spec->target_type, type);
    strcpy((char *)(spec + 1), text);
    used += room;
    io->target_count++;
    io->data_size = used;
}

static void new_table(void)
{
    struct dm_ioctl *io = (void *)table;

    memset(table, 0, sizeof(table));
    used = io->data_start = sizeof(*io);
}

static void linear_tables(void)
{
    struct mapper_target t[MAPPER_MAX_TARGETS];
    char why[96];

    new_table();
    target("linear", 0, 100, "8:2 2048");
    target("linear", 100, 50, "259:1 4096");
    CHECK(mapper_parse(table, sizeof(table), t, why) == 2);
    CHECK(t[0].length == 100 && t[0].major == 8 && t[0].minor == 2 &&
          t[0].offset == 2048);
    CHECK(t[1].start == 100 && t[1].major == 259 && t[1].offset == 4096);
    target("crypt", 150, 50, "aes 0 0 8:3 0");
    CHECK(mapper_parse(table, sizeof(table), t, why) == -1 &&
          strstr(why, "crypt"));
    /* Only its metadata device has the places of its blocks. */
    new_table();
    target("thin", 0, 100, "253:2 1");
    CHECK(mapper_parse(table, sizeof(table), t, why) == -1 &&
          !strcmp(why, "device mapper target thin"));
}

static void damaged_tables(void)
{
    struct mapper_target t[MAPPER_MAX_TARGETS];
    char why[96];

    for (int round = 0; round < 20000; round++) {
        uint32_t length;
        uint8_t *copy;

        new_table();
        target("linear", 0, 100, "8:2 2048");
        target("linear", 100, 50, "8:3 0");
        for (uint64_t n = below(4); n; n--) {
            table[below(used)] = rnd();
        }
        length = sizeof(struct dm_ioctl) +
                 below(used + 1 - sizeof(struct dm_ioctl));
        copy = malloc(length);
        memcpy(copy, table, length);
        mapper_parse(copy, length, t, why);
        free(copy);
    }
}

static void places(void)
{
    static struct disks d;
    uint32_t disk;
    uint64_t at;

    d.piece[0] = (struct disks_piece) { 0, 8192, 512, 1 };
    d.piece[1] = (struct disks_piece) { 8192, 4096, 0, 2 };
    d.device[0].count = 2;
    CHECK(disks_place(&d, &d.device[0], 4096, 1 << 20, &disk, &at) == 4096 &&
          disk == 1 && at == 4608);
    CHECK(disks_place(&d, &d.device[0], 8192, 100, &disk, &at) == 100 &&
          disk == 2 && at == 0);
    CHECK(!disks_place(&d, &d.device[0], 12288, 1, &disk, &at));
    CHECK(!disks_place(&d, &d.device[0], UINT64_MAX, 1, &disk, &at));
}

static void sorting(void)
{
    static struct run run[500];
    static uint32_t order[500], spare[500];

    for (int round = 0; round < 300; round++) {
        uint32_t count = below(500);

        for (uint32_t i = 0; i < count; i++) {
            run[i].index = below(round % 2 ? 50 : UINT64_MAX);
            order[i] = i;
        }
        resolve_sort(run, order, spare, count);
        for (uint32_t i = 1; i < count; i++) {
            const struct run *a = &run[order[i - 1]], *b = &run[order[i]];

            /* Equal ones keep their order: none is there twice. */
            CHECK(a->index < b->index ||
                  (a->index == b->index && order[i - 1] < order[i]));
        }
    }
}

int main(void)
{
    RUN(mountinfo);
    RUN(layers);
    RUN(long_mount);
    RUN(pci_path);
    RUN(linear_tables);
    RUN(damaged_tables);
    RUN(places);
    RUN(sorting);
    return test_status;
}
