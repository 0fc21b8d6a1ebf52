/*
 * Wire format of records and answers
 * ==================================
 *
 * Everything here is pure: buffers in, values out, no QEMU state, so that
 * unit tests and fuzzers link it alone.
 *
 * Negotiation
 * -----------
 *   source       MIG_CMD_PING 1, then MIG_CMD_PING DEDUP_PING_MAGIC
 *   destination  MIG_RP_MSG_DEDUP HELLO, then PONG   (stock: PONG only)
 * No element is sent before HELLO has arrived, so that a stock peer on
 * either side sees an ordinary migration.
 *
 * Elements (source to destination)
 * --------------------------------
 * In the RAM section, where a page header could stand:
 *
 *   be64  RAM_SAVE_FLAG_DEDUP
 *   be16  type
 *   be32  length of payload, at most DEDUP_WIRE_MAX_PAYLOAD
 *   ...   payload
 *
 * SETUP (once, before any other):
 *   be16  version (2)      be16  flags (bit 0: tracking was on; bit 1:
 *         batches of compressed pages may follow; bit 2: records may come
 *         in post-copy)
 *   16 B  digest key
 *   be64  bytes, be32 reads a second from storage at most, 0: no limit
 *   be16  number of RAM blocks, each: u8 length, idstr; be64 used length
 *   be16  number of disks, each once: u8 copy (0 shared, 1 own),
 *         be16 length, QOM path of the device
 *
 * EXTENTS (where the bytes of a shared disk are; only for disks with copy
 * shared; as many as DEDUP_MAX_LEAVES permits, before the first record that
 * needs them):
 *   be16  disk   be16 number, at most DEDUP_WIRE_MAX_EXTENTS
 *   each: be64 guest offset, be64 length, be64 host offset, be16 depth in
 *   the backing chain, u8 node (enum DedupNode)
 *
 * EPOCH: be32 epoch of all records that follow, until the next EPOCH; before
 * the first record, and never smaller than the one before.  See "Order".
 *
 * RECORDS: be32 id of the first record, then runs until the end.  Ids grow
 * by one a page.  A run is pages that are consecutive in guest memory and on
 * the disk:
 *   varint  (pages << 1) | new context
 *   [varint RAM block, varint disk]   when new context
 *   zigzag  first page, relative to the page after the last run's last (0
 *           at the start of a payload or of a new context)
 *   zigzag  sector (512 bytes, guest offset), relative likewise
 *   16 B    digest of each page
 * A lone page takes about 22 bytes, a long run little more than 16 a page.
 *
 * BATCH: pages, compressed; see compress-batch.c.  Its payload is longer than
 * that of the others, DEDUP_BATCH_PAYLOAD at most.
 *
 * HINT_DISKS (once, before HINTS; both only if HELLO permits, and not in
 * post-copy): u8 number of disks, each: u8 length, QOM path of the device
 *
 * HINTS, what the source knows of pages that it did not send as records: runs
 * until the end, DEDUP_WIRE_MAX_HINTS pages at most.  A run is pages that are
 * consecutive in guest memory and on the disk, all with a fingerprint or all
 * without:
 *   varint  (pages << 2) | (with fingerprints << 1) | new context
 *   [varint RAM block, varint disk in HINT_DISKS]   when new context
 *   varint  first page, relative to the page after the last run's last (0
 *           at the start of a payload or of a new context)
 *   zigzag  sector, relative likewise
 *   [be16   fingerprint of each page, not 0]
 * RAM blocks, and pages in them, ascend through all HINTS.  A page takes 2
 * bytes, a lone one about 8.  Hints that are malformed are ignored, and so are
 * all after them: they are no reason to fail a migration.
 *
 * Order
 * -----
 * Records come in order on the main channel.  Content comes there as well,
 * or on multifd's channels, which may be ahead of it.  So both carry the
 * epoch in which the source took the page out of its dirty bitmap: the number
 * of synchronisations of the bitmap until then, from 1 on.  A multifd packet
 * has the epoch of the last page in it in the first reserved be32 of its
 * header.  0 there: not said.
 *
 * - Within an epoch no record of a page follows content of the same page: a
 *   page that was sent in full is dirty again after a synchronisation only.
 *   So a record is void if content of its epoch, or of a later one, has
 *   arrived: the destination drops it, and the source, which sent that
 *   content after it, expects no answer.
 * - The source sends no record while multifd may still hold content of an
 *   earlier epoch: it synchronises the channels first.  So content is never
 *   older than what a record that arrived before it has put into the page.
 *   A destination that sees it happen fails the migration.
 *
 * Post-copy
 * ---------
 * Its beginning voids every record: the source makes all outstanding pages
 * dirty before it sends the discards.  If SETUP permits, it then sends
 * records again, with ids that go on growing, for pages that are dirty; the
 * guest writes nothing at the source any more, so that a page has one content
 * from here on and order does not matter.  Only EPOCH and RECORDS come, and
 * no more once post-copy was interrupted.
 *
 * Messages (destination to source), in MIG_RP_MSG_DEDUP, at most 512 bytes
 * ------------------------------------------------------------------------
 *   u8 1 HELLO: be16 version, be32 features (bit 0: batches compressed by
 *        zstd; bit 1: records in post-copy; bit 2: hints; without the word:
 *        none)
 *   u8 2 ANSWERS: be32 pages waiting, be32 read rate in KiB/s, then runs
 *        until the end:
 *        zigzag first id, relative to the id after the last run's last
 *        varint (number << 2) | status (enum DedupAnswer)
 *
 * varint: 7 bits a byte, least significant first, high bit: more follows;
 * at most 10 bytes.  zigzag: signed as varint.
 *
 * A record that newer content or a newer record replaced gets no answer: the
 * source knows.
 *
 * Versioning: HELLO says what the destination speaks; a source that does not
 * sends nothing.  A destination that does not know SETUP's version answers
 * every record with DEDUP_ANSWER_IO.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef MIGRATION_DEDUP_WIRE_H
#define MIGRATION_DEDUP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DEDUP_WIRE_VERSION      2
#define DEDUP_WIRE_MAX_PAYLOAD  (64 * 1024)
#define DEDUP_WIRE_MAX_MESSAGE  512
#define DEDUP_WIRE_MAX_BLOCKS   1024
#define DEDUP_WIRE_MAX_DISKS    127
#define DEDUP_WIRE_MAX_BATCH    512
#define DEDUP_WIRE_MAX_HINTS    2048
#define DEDUP_DIGEST_LEN        16
#define DEDUP_KEY_LEN           16
#define DEDUP_SECTOR            512

enum DedupElement {
    DEDUP_ELEMENT_SETUP = 1,
    DEDUP_ELEMENT_EXTENTS = 2,
    DEDUP_ELEMENT_RECORDS = 3,
    DEDUP_ELEMENT_EPOCH = 4,
    DEDUP_ELEMENT_HINT_DISKS = 5,
    DEDUP_ELEMENT_HINTS = 6,
    DEDUP_ELEMENT_BATCH = 8,
};

#define DEDUP_FEATURE_ZSTD      1       /* in HELLO */
#define DEDUP_FEATURE_LAZY      2
#define DEDUP_FEATURE_HINTS     4
#define DEDUP_SETUP_TRACKED     1       /* flags */
#define DEDUP_SETUP_COMPRESS    2
#define DEDUP_SETUP_LAZY        4

enum DedupMessage {
    DEDUP_MESSAGE_HELLO = 1,
    DEDUP_MESSAGE_ANSWERS = 2,
};

/* What became of a record */
typedef enum DedupAnswer {
    DEDUP_ANSWER_OK = 0,        /* read, proven, placed */
    DEDUP_ANSWER_DIGEST = 1,    /* storage holds other bytes */
    DEDUP_ANSWER_IO = 2,        /* could not be read */
    DEDUP_ANSWER_RESERVED = 3,
} DedupAnswer;

/* Which node, at a depth of the backing chain, an extent lies in */
typedef enum DedupNode {
    DEDUP_NODE_FILE = 0,        /* the format's "file" child */
    DEDUP_NODE_DATA_FILE = 1,   /* the format's "data-file" child */
    DEDUP_NODE_SELF = 2,        /* the node itself */
    DEDUP_NODE__MAX = 3,
} DedupNode;

typedef struct DedupExtent {
    uint64_t start;             /* guest offset, bytes */
    uint64_t len;               /* bytes */
    uint64_t host;              /* offset in the node, bytes */
    uint16_t depth;
    uint8_t node;
} DedupExtent;

#define DEDUP_WIRE_EXTENT_LEN   27
#define DEDUP_WIRE_MAX_EXTENTS  1024    /* in one element */

typedef struct DedupRecord {
    uint32_t block;             /* index in SETUP */
    uint32_t disk;              /* index in SETUP */
    uint64_t page;              /* in the RAM block */
    uint64_t sector;            /* guest offset / 512 */
    uint8_t digest[DEDUP_DIGEST_LEN];
} DedupRecord;

/* Upper bound of the encoding of @n records */
#define DEDUP_WIRE_RECORDS_BOUND(n) (4 + (n) * (4 * 10 + 5 + DEDUP_DIGEST_LEN))

/* Reader over a buffer; @bad once anything was out of bounds */
typedef struct DedupReader {
    const uint8_t *p, *end;
    bool bad;
} DedupReader;

void dedup_reader_init(DedupReader *r, const uint8_t *buf, size_t len);
uint64_t dedup_get_be(DedupReader *r, unsigned bytes);
uint64_t dedup_get_varint(DedupReader *r);
int64_t dedup_get_zigzag(DedupReader *r);
/* Pointer to @len bytes in the buffer, NULL when fewer are left */
const uint8_t *dedup_get_bytes(DedupReader *r, size_t len);

uint8_t *dedup_put_be(uint8_t *p, uint64_t v, unsigned bytes);
uint8_t *dedup_put_varint(uint8_t *p, uint64_t v);
uint8_t *dedup_put_zigzag(uint8_t *p, int64_t v);

/*
 * Encode @n records, the first with id @first_id, into @out (at least
 * DEDUP_WIRE_RECORDS_BOUND(@n) bytes).  Returns the length.
 */
size_t dedup_encode_records(uint8_t *out, uint32_t first_id,
                            const DedupRecord *recs, unsigned n);

/*
 * Decode a RECORDS payload.  @fn is called for each record in order; what it
 * returns, if not 0, ends the decoding and is returned.  -1: malformed.
 * @fn checks block, disk, page and sector against what exists.
 */
typedef int DedupRecordFunc(void *opaque, uint32_t id, const DedupRecord *rec);
int dedup_decode_records(const uint8_t *buf, size_t len, DedupRecordFunc *fn,
                         void *opaque);

typedef struct DedupWireHint {
    uint32_t block;             /* index in SETUP */
    uint32_t disk;              /* index in HINT_DISKS */
    uint64_t page;              /* in the RAM block */
    uint64_t sector;            /* guest offset / 512 */
    uint16_t fingerprint;       /* 0: none */
} DedupWireHint;

/* Upper bound of the encoding of @n hints */
#define DEDUP_WIRE_HINTS_BOUND(n) ((n) * 27)

/*
 * Encode @n hints, DEDUP_WIRE_MAX_HINTS at most, that ascend, into @out (at
 * least DEDUP_WIRE_HINTS_BOUND(@n) bytes).  Returns the length.
 */
size_t dedup_encode_hints(uint8_t *out, const DedupWireHint *hints,
                          unsigned n);

/*
 * Decode a HINTS payload.  @fn is called for each page in order; what it
 * returns, if not 0, ends the decoding and is returned.  -1: malformed.
 * @fn checks all numbers against what exists, and that pages ascend.
 */
typedef int DedupHintFunc(void *opaque, const DedupWireHint *hint);
int dedup_decode_hints(const uint8_t *buf, size_t len, DedupHintFunc *fn,
                       void *opaque);

uint8_t *dedup_put_extent(uint8_t *p, const DedupExtent *e);
bool dedup_get_extent(DedupReader *r, DedupExtent *e);

typedef struct DedupResult {
    uint32_t id;
    uint32_t status;            /* DedupAnswer */
} DedupResult;

/*
 * Encode as many of @n results, sorted by id, as fit into @max bytes.
 * Returns the length, *@done is how many went in.
 */
size_t dedup_encode_answers(uint8_t *out, size_t max, uint32_t backlog,
                            uint32_t rate_kib, const DedupResult *res,
                            unsigned n, unsigned *done);

/*
 * Decode an ANSWERS message behind its type byte.  @fn is called for each
 * run.  @first + @count stays within 32 bits.  -1: malformed.
 */
typedef void DedupAnswerFunc(void *opaque, uint32_t first, uint32_t count,
                             DedupAnswer status);
int dedup_decode_answers(const uint8_t *buf, size_t len, uint32_t *backlog,
                         uint32_t *rate_kib, DedupAnswerFunc *fn,
                         void *opaque);

#endif
