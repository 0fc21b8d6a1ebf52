/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "identity.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sysfs.h"

/* /sys/devices/pci0000:00/0000:00:02.3/0000:05:00.0/virtio3/block/vda */
bool identity_pci(const char *path, struct listing_disk *disk)
{
    const char *at = strstr(path, "/pci");
    unsigned domain, bus, device, function;
    int length;

    if (!at || sscanf(at, "/pci%x:%x%n", &domain, &bus, &length) != 2 ||
        bus > 255) {
        return false;
    }
    disk->domain = domain;
    disk->root = bus;
    disk->steps = 0;
    for (at += length; sscanf(at, "/%*x:%x:%x.%x%n", &bus, &device,
                              &function, &length) == 3; at += length) {
        if (bus > 255 || device > 31 || function > 7 ||
            disk->steps == LISTING_MAX_PCI_STEPS) {
            break;
        }
        disk->path[disk->steps++] = device << 3 | function;
        disk->pci_bus = bus;
    }
    if (!disk->steps) {
        return false;
    }
    disk->flags |= LISTING_DISK_PCI;
    return true;
}

static void scsi(struct listing_disk *disk, const char *base)
{
    unsigned char page[4 + LISTING_SERIAL_LEN + 1] = { 0 };
    unsigned host, channel, target;
    unsigned long long unit;
    char name[64];
    long got;

    disk->bus = LISTING_BUS_SCSI;
    if (sysfs_link(name, sizeof(name), "%s/device", base) &&
        sscanf(name, "%u:%u:%u:%llu", &host, &channel, &target, &unit) == 4) {
        disk->channel = channel;
        disk->target = target;
        disk->unit = unit;
        disk->flags |= LISTING_DISK_SCSI;
    }
    /* Page 0x80: two bytes, the length, the serial number */
    got = sysfs_bytes(page, sizeof(page) - 1, "%s/device/vpd_pg80", base);
    if (got > 4) {
        size_t length = page[3], lead;
        char *text = disk->serial;

        length = length < (size_t)got - 4 ? length : (size_t)got - 4;
        memcpy(text, page + 4, length);
        text[length] = 0;
        while (length && text[length - 1] == ' ') {
            text[--length] = 0;
        }
        lead = strspn(text, " ");
        memmove(text, text + lead, length - lead + 1);
    }
    sysfs_text(disk->wwid, sizeof(disk->wwid), "%s/device/wwid", base);
}

static const char *nvme(struct listing_disk *disk, const char *base)
{
    char transport[16];
    uint64_t unit;

    disk->bus = LISTING_BUS_NVME;
    if (sysfs_text(transport, sizeof(transport), "%s/device/transport",
                   base) && strcmp(transport, "pcie")) {
        return "NVMe over a network";
    }
    sysfs_text(disk->serial, sizeof(disk->serial), "%s/device/serial", base);
    sysfs_text(disk->wwid, sizeof(disk->wwid), "%s/wwid", base);
    if (sysfs_number(&unit, "%s/nsid", base)) {
        disk->unit = unit;
    }
    return NULL;
}

const char *identity_read(struct listing_disk *disk, unsigned major,
                          unsigned minor, enum listing_reason *reason)
{
    char base[64], path[PATH_MAX], bus[32];
    const char *why = NULL, *name;
    uint64_t number;

    *reason = LISTING_WHY_DEVICE;
    snprintf(base, sizeof(base), "/sys/dev/block/%u:%u", major, minor);
    if (!realpath(base, path)) {
        return "device has gone";
    }
    name = strrchr(path, '/') + 1;
    snprintf(disk->name, sizeof(disk->name), "%s", name);
    if (!sysfs_link(bus, sizeof(bus), "%s/device/subsystem", base)) {
        return "device that is not a disk";
    }
    if (strstr(path, "/session")) {
        *reason = LISTING_WHY_NETWORK;
        return "iSCSI disk";
    }
    if (!strcmp(bus, "virtio")) {
        disk->bus = LISTING_BUS_VIRTIO_BLK;
        sysfs_text(disk->serial, sizeof(disk->serial), "%s/serial", base);
    } else if (!strcmp(bus, "scsi")) {
        scsi(disk, base);
    } else if (!strncmp(bus, "nvme", 4)) {
        why = nvme(disk, base);
        *reason = LISTING_WHY_NETWORK;
    } else {
        why = "disk of an unknown bus";
    }
    identity_pci(path, disk);
    disk->sector = LISTING_SECTOR;
    if (sysfs_number(&number, "%s/queue/logical_block_size", base)) {
        disk->sector = number;
    }
    if (sysfs_number(&number, "%s/ro", base) && number) {
        disk->flags |= LISTING_DISK_READ_ONLY;
    }
    listing_clean(disk->name);
    listing_clean(disk->serial);
    listing_clean(disk->wwid);
    return why;
}
