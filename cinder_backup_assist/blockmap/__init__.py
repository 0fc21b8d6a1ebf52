# SPDX-License-Identifier: Apache-2.0
"""Where each block of a volume is in a chain of Cinder's backups.

What Cinder's chunked backup drivers write for one backup, with PREFIX for
the backup's service_metadata::

    PREFIX_metadata      a JSON object: version, backup_id, volume_id,
                         parent_id, extra_metadata and objects, a list of
                         {NAME: {offset, length, compression, md5}}
    PREFIX_sha256file    a JSON object: chunk_size and sha256s, a list of
                         the SHA-256 of each unit of chunk_size bytes of
                         the volume; the last unit may be shorter
    PREFIX-NNNNN         an object: length bytes of the volume from offset
                         on, as one compressed stream or as they are

A full backup has objects for the whole volume.  An incremental has an
object for each range of units that its parent does not have; its list of
SHA-256 is of the whole volume nevertheless.  Metadata is not trusted: names
are rebuilt from numbers, sizes are checked before anything is allocated.

    jsonstream    reads JSON of which one list is too long for memory
    metadata      reads the two files of one backup
    chain         joins the backups of a chain: unit -> newest object
    objects       reads one object forwards, and no more than it may hold
    stream        reads wanted ranges, in the order of objects
"""
