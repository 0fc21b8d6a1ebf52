/* SPDX-License-Identifier: Apache-2.0 */
/* Software RAID, in a sysfs that the test makes */
#include "test.h"
#include "disks.h"
#include "mirror.h"
#include "sysfs.h"

#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>

#define TEST_GROUP "mirror"
#define MD "sys/dev/block/9:0/md/"

static char root[] = "/tmp/lister-mirror-XXXXXX";
static char why[MIRROR_WHY];
static struct mirror_member member;

/* Writes root/path, and makes the directories above it */
static void put(const char *path, const char *text)
{
    char whole[PATH_MAX];
    FILE *file;

    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(whole, 0700);
        *at = '/';
    }
    file = fopen(whole, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) {
        perror(whole);
        exit(1);
    }
}

static void drop(const char *path)
{
    char whole[PATH_MAX];

    snprintf(whole, sizeof(whole), "%s/%s", root, path);
    remove(whole);
}

/* A RAID1 of 8:1 and 8:16, both in sync */
static void healthy(void)
{
    put(MD "level", "raid1\n");
    put(MD "array_state", "clean\n");
    put(MD "reshape_position", "none\n");
    put(MD "resync_start", "none\n");
    put(MD "raid_disks", "2\n");
    put(MD "rd0/state", "in_sync\n");
    put(MD "rd0/bad_blocks", "");
    put(MD "rd0/offset", "2048\n");
    put(MD "rd0/block/dev", "8:1\n");
    put(MD "rd1/state", "in_sync\n");
    put(MD "rd1/bad_blocks", "");
    put(MD "rd1/offset", "4096\n");
    put(MD "rd1/block/dev", "8:16\n");
}

static bool ask(void)
{
    memset(&member, 0, sizeof(member));
    strcpy(why, "");
    return mirror_member(9, 0, &member, why);
}

static bool first(void)
{
    return ask() && member.major == 8 && member.minor == 1 &&
           member.offset == 2048 * 512;
}

static bool second(void)
{
    return ask() && member.major == 8 && member.minor == 16 &&
           member.offset == 4096 * 512;
}

static bool refused(const char *text)
{
    return !ask() && strstr(why, text);
}

static void accepted(void)
{
    static const char *const states[] = {
        "clean", "active", "active-idle", "write-pending", "readonly",
        "read-auto",
    };

    healthy();
    for (unsigned i = 0; i < sizeof(states) / sizeof(*states); i++) {
        put(MD "array_state", states[i]);
        CHECK(first());
    }
    put(MD "rd0/state", "in_sync,failfast,want_replacement\n");
    CHECK(first());
    put(MD "rd0/offset", "0\n");
    CHECK(ask() && member.offset == 0);
}

static void arrays_refused(void)
{
    static const struct { const char *file, *text, *why; } cases[] = {
        { MD "level", "raid10", "level raid10" },
        { MD "level", "raid0", "level raid0" },
        { MD "level", "raid1x", "level raid1x" },
        { MD "level", "", "level unknown" },
        { MD "array_state", "inactive", "state inactive" },
        { MD "array_state", "suspended", "state suspended" },
        { MD "array_state", "broken", "state broken" },
        { MD "array_state", "clean,active", "state clean,active" },
        { MD "array_state", "", "state unknown" },
        { MD "reshape_position", "512", "reshapes" },
        { MD "raid_disks", "3 (2)", "reshapes" },
        { MD "raid_disks", "-1", "reshapes" },
        { MD "raid_disks", "99999999999999999999", "reshapes" },
        { MD "raid_disks", "18446744073709551615", "too many" },
        { MD "raid_disks", "0", "without a member" },
        { MD "resync_start", "0", "resyncs" },
    };

    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        healthy();
        put(cases[i].file, cases[i].text);
        CHECK(refused(cases[i].why));
        healthy();
        if (strcmp(cases[i].why, "too many")) {
            drop(cases[i].file);
            CHECK(!ask());
        }
    }
}

static void members_refused(void)
{
    static const struct { const char *file, *text, *why; } cases[] = {
        { "state", "faulty", "faulty" },
        { "state", "faulty,in_sync", "faulty" },
        { "state", "spare", "not in sync" },
        { "state", "not_in_sync", "not in sync" },
        { "state", "", "not in sync" },
        { "state", "in_sync,write_mostly", "write-mostly" },
        { "state", "in_sync,replacement", "replacement" },
        { "state", "in_sync,journal", "journal" },
        { "state", "in_sync,write_error", "bad blocks" },
        { "state", "in_sync,blocked", "bad blocks" },
        { "bad_blocks", "100 8\n", "bad blocks" },
        { "offset", "", "offset" },
        { "offset", "-8", "offset" },
        { "offset", "20x", "offset" },
        { "offset", "18014398509481984", "offset" },
        { "offset", "99999999999999999999", "offset" },
        { "block/dev", "sda", "device of a member" },
    };
    char path[64];

    for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        /* The next member takes its place; */
        healthy();
        snprintf(path, sizeof(path), MD "rd0/%s", cases[i].file);
        put(path, cases[i].text);
        CHECK(second());
        /* without one there is nothing. */
        snprintf(path, sizeof(path), MD "rd1/%s", cases[i].file);
        put(path, cases[i].text);
        CHECK(refused(cases[i].why));
    }
    healthy();
    drop(MD "rd0/offset");
    drop(MD "rd1/bad_blocks");
    CHECK(!ask());
}

static void degraded(void)
{
    healthy();
    drop(MD "rd0/state");
    CHECK(second());
    put(MD "rd1/state", "spare");
    CHECK(refused("not in sync"));
    drop(MD "rd1/state");
    CHECK(refused("without a member in sync"));
}

/* All disks on the way: 9:0 is on the partition 8:1, which 8:16 is not. */
static void devices(void)
{
    static struct disks d;
    const struct disks_device *md;

    healthy();
    put("sys/class/block/md0/dev", "9:0");
    put("sys/class/block/md0/size", "1000");
    put("sys/class/block/sdb/dev", "8:16");
    put("sys/class/block/sdb/size", "5096");
    /* A loop device: what is refused below is refused above. */
    put("sys/dev/block/8:16/loop/x", "");
    disks_find(&d);
    md = disks_device(&d, 9, 0);
    CHECK(md && !md->count && strstr(md->why, "unknown device"));
    drop(MD "rd0/state");
    disks_find(&d);
    md = disks_device(&d, 9, 0);
    CHECK(md && !md->count && !strcmp(md->why, "loop device"));
    /* Upon itself */
    put(MD "rd1/block/dev", "9:0");
    disks_find(&d);
    md = disks_device(&d, 9, 0);
    CHECK(md && !md->count && strstr(md->why, "upon each other"));
}

int main(void)
{
    char command[64];

    if (!mkdtemp(root)) {
        return 1;
    }
    sysfs_root = root;
    RUN(accepted);
    RUN(arrays_refused);
    RUN(members_refused);
    RUN(degraded);
    RUN(devices);
    snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command) || test_status;
}
