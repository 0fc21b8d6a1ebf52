# SPDX-License-Identifier: Apache-2.0
"""Guests that we start and migrate ourselves, for tests and benchmarks.

=================== =====================================================
module              what it is
=================== =====================================================
guest               the interface: the product's, and start and migrate
spec, options       a guest, and a migration, as they are wanted
direct              a guest in a QEMU process that we start
libvirt             a guest of libvirt's, without Nova
memory              all RAM of a guest in files, and their comparison
bootsector          a guest of 512 bytes that checks its memory
qemus               where the stock and the patched QEMU are
ledger              what a long bench has done, in a file
results, table      rows with targets: table, report.json, exit status
fuzzing             runs fuzzers of parsers; rows as results has them
=================== =====================================================

``command`` and ``libvirt_xml`` write out a spec; the other modules migrate.
The product never imports this package.
"""
