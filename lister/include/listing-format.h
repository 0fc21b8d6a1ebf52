/*
 * Page-cache listing, version 1
 * =============================
 *
 * What a guest says of its page cache: which pages of its memory hold which
 * bytes of which disk.  Neither contents nor names of files are in it.
 *
 * A stream of frames, from the lister to whoever asked.  All numbers are
 * little endian, "0" fields are written as 0 and a reader refuses others.
 * A page is 4096 bytes here, whatever the guest's kernel uses.  Texts are
 * printable ASCII (0x20 .. 0x7e).  Nothing in it is trusted: a wrong extent
 * costs the host a read.
 *
 *   frame: header, 16 bytes, then the payload
 *     0   4  magic "NPCL"
 *     4   2  type
 *     6   2  0
 *     8   4  length of the payload, at most LISTING_MAX_PAYLOAD
 *    12   4  number of the frame in its listing: 0, 1, 2 ...
 *
 * A listing is BEGIN, DISK for each disk, EXTENTS, COMPACT and SKIPPED in any
 * order and number, END.  One that does not finish with END is broken off: what
 * has arrived is still as good as any hint.
 *
 *   BEGIN (1), 64 bytes
 *     0   4  version, 1
 *     4   4  page size of the guest's kernel, bytes: 4096, 16384 or 65536
 *     8   8  nonce of the request, 0 when there was none
 *    16  48  0
 *
 *   DISK (2), 256 bytes: a disk as the guest sees it, partitions and LVM
 *   resolved.  At most LISTING_MAX_DISKS, in the order of their indices.
 *     0   4  index: 0, 1, 2 ...
 *     4   4  bus: enum listing_bus
 *     8   8  size, bytes
 *    16   4  logical sector size, bytes
 *    20   4  flags: LISTING_DISK_*
 *    24   4  PCI domain
 *    28   1  PCI bus behind the host bridge where the path begins
 *    29   1  steps of the path, 0 .. 8 (0 without LISTING_DISK_PCI)
 *    30   2  0
 *    32   8  path from that bus to the disk's controller, a byte a step:
 *            device << 3 | function; unused ones 0.  It does not depend on
 *            how the firmware numbers the buses behind bridges.
 *    40   1  PCI bus number of the controller, as the guest numbers it
 *    41   7  0
 *    48   4  SCSI channel (LISTING_DISK_SCSI, else 0)
 *    52   4  SCSI target
 *    56   8  SCSI logical unit, or NVMe namespace with LISTING_BUS_NVME
 *    64  32  the kernel's name for it, "vda", text padded with NUL
 *    96  64  serial number, text padded with NUL, may be empty
 *   160  64  world-wide ID, likewise
 *   224  32  0
 *
 *   EXTENTS (3), 1 .. LISTING_MAX_FRAME_EXTENTS times 16 bytes; over the
 *   whole listing ascending by address and not overlapping
 *     0   8  guest-physical address (a multiple of 4096)
 *            | number of pages - 1 (bits 0 .. 11)
 *     8   8  offset on the disk in bytes (a multiple of 512)
 *            | kind (bits 6, 7: enum listing_kind; bit 8 is 0)
 *            | index of the disk (bits 0 .. 5)
 *   The address plus the length is below 2^63, the offset plus the length
 *   at most the size of the disk.
 *
 *   COMPACT (6): the same in a quarter of the bytes or so, only if the host
 *   has said that it reads them (see REQUEST).  Extents of up to 65536 pages
 *   of memory, in groups; all extents of a frame behind those of the frames
 *   before, and not overlapping.  At most LISTING_MAX_COMPACT_EXTENTS.
 *     0   8  base: a guest-physical address (a multiple of 4096)
 *     8   .  groups, to the end of the payload
 *   A group: extents with the same disk and kind, whose offsets differ by
 *   multiples of 4096, ascending by offset
 *     0   1  index of the disk
 *     1   1  kind: enum listing_kind
 *     2   2  number of extents, not 0
 *     4   4  0
 *     8   8  offset of the first one, bytes (a multiple of 512)
 *    16   .  of each: pages from the base to its address, 2 bytes
 *     .   .  of each, a varint: pages from the offset of the one before (0 of
 *            the first) * 2, + 1 if it is longer than a page
 *     .   .  of each longer one, a varint: its pages - 2
 *   A varint is 7 bits a byte, the lowest first; all bytes but the last have
 *   bit 7 set.  8 bytes at most.
 *
 *   SKIPPED (4), 17 .. 176 bytes: what is not listed, and why.  At most
 *   LISTING_MAX_SKIPPED.
 *     0   4  reason: enum listing_reason (a reader shows unknown ones)
 *     4   4  0
 *     8   8  pages concerned, 0 if that is not known
 *    16   .  one line for people, 1 .. 160 bytes of text.  Names at most a
 *            kind of file system and the kernel's name of a device.
 *
 *   END (5), 160 bytes
 *     0   4  status: enum listing_status
 *     4   4  method: enum listing_method
 *     8   8  extents in this listing
 *    16   8  pages listed, file data
 *    24   8  pages listed, file-system metadata
 *    32   8  pages of the page cache that were seen, listed or not, without
 *            those that no disk can have (see 64)
 *    40   8  of these, not listed: changed, not yet written (dirty)
 *    48   8    under writeback
 *    56   8    not (yet) read from disk
 *    64   8  pages that no disk has: tmpfs, shared memory, file systems of
 *            another kind
 *    72   8  pages of (32) not listed as their place could not be told
 *    80   8  files that were looked at
 *    88   8  time, microseconds
 *    96   8  processor time, microseconds
 *   104   8  largest memory used by the lister, bytes
 *   112   8  bytes the lister caused to be read from disks
 *   120   8  pages of guest memory that were examined
 *   128  32  0
 *   Any number may be UINT64_MAX: not known.
 *
 * On a channel that stays open (the virtio-serial port LISTING_PORT) the host
 * sends a frame first, and the listing that answers it carries its nonce.  A
 * new request ends a listing that is under way, maybe within a frame: a host
 * that has asked passes over everything until a BEGIN with its nonce.
 *
 *   REQUEST (16), 64 bytes.  The number of the frame is LISTING_READS_COMPACT
 *   if the host reads COMPACT frames, else 0.  Listers of earlier releases do
 *   not look at it and send EXTENTS, which every host reads.
 *     0   4  version, 1
 *     4   4  time limit, milliseconds, 1 .. LISTING_MAX_TIME_MS
 *     8   8  nonce, not 0
 *    16   4  memory limit, KiB, at least LISTING_MIN_MEMORY_KIB
 *    20   4  at most so many extents, 1 .. LISTING_MAX_EXTENTS
 *    24  40  0
 *
 * SPDX-License-Identifier: Apache-2.0
 */

#ifndef LISTING_FORMAT_H
#define LISTING_FORMAT_H

#define LISTING_MAGIC               "NPCL"
#define LISTING_VERSION             1

#define LISTING_PORT                "org.nova_dedup_migrate.page_cache.0"

#define LISTING_PAGE                4096
#define LISTING_SECTOR              512

#define LISTING_HEADER_LEN          16
#define LISTING_BEGIN_LEN           64
#define LISTING_DISK_LEN            256
#define LISTING_EXTENT_LEN          16
#define LISTING_SKIPPED_LEN         16      /* and the text */
#define LISTING_END_LEN             160
#define LISTING_REQUEST_LEN         64

#define LISTING_MAX_PAYLOAD         65536
#define LISTING_MAX_DISKS           64
#define LISTING_MAX_EXTENTS         (1 << 24)
#define LISTING_MAX_FRAME_EXTENTS   (LISTING_MAX_PAYLOAD / LISTING_EXTENT_LEN)
#define LISTING_MAX_EXTENT_PAGES    4096
/* So many fit whatever they are, each in a group of its own or not: 1024 kinds
 * of groups and 12 bytes an extent */
#define LISTING_MAX_COMPACT_EXTENTS 4080
#define LISTING_READS_COMPACT       1
#define LISTING_MAX_SKIPPED         64
#define LISTING_MAX_TEXT            160
#define LISTING_MAX_PCI_STEPS       8
#define LISTING_MAX_TIME_MS         600000
#define LISTING_MIN_MEMORY_KIB      4096

#define LISTING_NAME_LEN            32
#define LISTING_SERIAL_LEN          64
#define LISTING_WWID_LEN            64

enum listing_type {
    LISTING_BEGIN = 1,
    LISTING_DISK = 2,
    LISTING_EXTENTS = 3,
    LISTING_SKIPPED = 4,
    LISTING_END = 5,
    LISTING_COMPACT = 6,
    LISTING_REQUEST = 16,
};

enum listing_bus {
    LISTING_BUS_UNKNOWN = 0,
    LISTING_BUS_VIRTIO_BLK = 1,
    LISTING_BUS_SCSI = 2,       /* virtio-scsi and others; ATA too */
    LISTING_BUS_NVME = 3,
};

#define LISTING_DISK_PCI            1u      /* the path is valid */
#define LISTING_DISK_SCSI           2u      /* channel, target, unit are */
#define LISTING_DISK_READ_ONLY      4u

enum listing_kind {
    LISTING_KIND_DATA = 0,
    LISTING_KIND_METADATA = 1,  /* the block device's own cache */
};

enum listing_reason {
    LISTING_WHY_FILE_SYSTEM = 1,    /* of a kind that cannot be mapped */
    LISTING_WHY_NETWORK = 2,        /* no disk of this guest has it */
    LISTING_WHY_ENCRYPTED = 3,      /* the disk holds other bytes */
    LISTING_WHY_DEVICE = 4,         /* a layer of disks that is not linear */
    LISTING_WHY_NOT_MOUNTED = 5,    /* in no mount the lister can see */
    LISTING_WHY_FILES = 6,          /* files that could not be opened */
    LISTING_WHY_PLACE = 7,          /* inline, compressed, not allocated */
    LISTING_WHY_LIMIT = 8,          /* a limit was reached */
    LISTING_WHY_METHOD = 9,         /* why nothing could be listed */
    LISTING_WHY_OTHER = 10,
};

enum listing_status {
    LISTING_WHOLE = 0,
    LISTING_ENDED_TIME = 1,     /* a limit was reached; what is there is */
    LISTING_ENDED_MEMORY = 2,   /* right, but it is not all */
    LISTING_ENDED_EXTENTS = 3,
    LISTING_ENDED_READS = 4,
    LISTING_FAILED = 5,         /* nothing could be listed */
};

enum listing_method {
    LISTING_METHOD_NONE = 0,
    LISTING_METHOD_PAGES = 1,   /* the kernel's page structures */
};

#endif
