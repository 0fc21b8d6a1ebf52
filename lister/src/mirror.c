/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "mirror.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "listing.h"
#include "sysfs.h"

#define BASE "/sys/dev/block/%u:%u/md"
/* What a superblock of md has room for */
#define MAX_SLOTS 1920

/* `word` is one of the words of `text`, which has commas between them. */
static bool has(const char *text, const char *word)
{
    size_t length = strlen(word);

    while (*text) {
        size_t next = strcspn(text, ",");

        if (next == length && !memcmp(text, word, length)) {
            return true;
        }
        text += next + (text[next] == ',');
    }
    return false;
}

/* Why the array cannot be mapped, whatever its members are */
static bool check_array(unsigned major, unsigned minor, uint64_t *slots,
                        char *why)
{
    static const char *const running =
        "clean,active,active-idle,write-pending,readonly,read-auto";
    char text[32];

    if (!sysfs_text(text, sizeof(text), BASE "/level", major, minor) ||
        strcmp(text, "raid1")) {
        listing_clean(text);
        snprintf(why, MIRROR_WHY, "software RAID of level %s",
                 *text ? text : "unknown");
        return false;
    }
    if (!sysfs_text(text, sizeof(text), BASE "/array_state", major, minor) ||
        strchr(text, ',') || !has(running, text)) {
        listing_clean(text);
        snprintf(why, MIRROR_WHY, "software RAID in state %s",
                 *text ? text : "unknown");
        return false;
    }
    /* During a reshape raid_disks has two numbers. */
    if (!sysfs_text(text, sizeof(text), BASE "/reshape_position", major,
                    minor) || strcmp(text, "none") ||
        !sysfs_number(slots, BASE "/raid_disks", major, minor)) {
        snprintf(why, MIRROR_WHY, "software RAID that reshapes");
        return false;
    }
    /* All members are "in_sync" meanwhile, and yet they differ. */
    if (!sysfs_text(text, sizeof(text), BASE "/resync_start", major, minor) ||
        strcmp(text, "none")) {
        snprintf(why, MIRROR_WHY, "software RAID that resyncs");
        return false;
    }
    if (*slots > MAX_SLOTS) {
        snprintf(why, MIRROR_WHY, "software RAID of too many members");
        return false;
    }
    return true;
}

/* NULL: the member has the array's data; otherwise why it does not */
static const char *check_member(unsigned major, unsigned minor, unsigned slot,
                                struct mirror_member *member)
{
    /* All words that the kernel has fit in. */
    char text[256];
    uint64_t sectors;

    if (!sysfs_text(text, sizeof(text), BASE "/rd%u/state", major, minor,
                    slot)) {
        return "software RAID without a member in sync";
    }
    if (has(text, "faulty")) {
        return "software RAID: member is faulty";
    }
    if (has(text, "replacement") || has(text, "journal")) {
        return "software RAID: member is a replacement or journal";
    }
    if (!has(text, "in_sync")) {
        return "software RAID: member is not in sync";
    }
    /* Its writes may be behind those of the others. */
    if (has(text, "write_mostly")) {
        return "software RAID: member is write-mostly";
    }
    /* Blocks that could not be written have old data on this member. */
    if (has(text, "write_error") || has(text, "blocked") ||
        !sysfs_text(text, sizeof(text), BASE "/rd%u/bad_blocks", major,
                    minor, slot) || *text) {
        return "software RAID: member has bad blocks";
    }
    if (!sysfs_number(&sectors, BASE "/rd%u/offset", major, minor, slot) ||
        sectors > INT64_MAX / LISTING_SECTOR) {
        return "software RAID: data offset of a member cannot be read";
    }
    member->offset = sectors * LISTING_SECTOR;
    if (!sysfs_text(text, sizeof(text), BASE "/rd%u/block/dev", major, minor,
                    slot) ||
        sscanf(text, "%u:%u", &member->major, &member->minor) != 2) {
        return "software RAID: device of a member cannot be read";
    }
    return NULL;
}

bool mirror_member(unsigned major, unsigned minor,
                   struct mirror_member *member, char *why)
{
    uint64_t slots;

    if (!check_array(major, minor, &slots, why)) {
        return false;
    }
    snprintf(why, MIRROR_WHY, "software RAID without a member in sync");
    for (unsigned slot = 0; slot < slots; slot++) {
        const char *unfit = check_member(major, minor, slot, member);

        if (!unfit) {
            return true;
        }
        /* A slot that is empty has the least to say. */
        if (sysfs_exists(BASE "/rd%u", major, minor, slot)) {
            snprintf(why, MIRROR_WHY, "%s", unfit);
        }
    }
    return false;
}
