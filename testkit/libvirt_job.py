# SPDX-License-Identifier: Apache-2.0
"""libvirt's figures of a migration as a whole."""

import dataclasses

from nova_dedup_migrate.hypervisor import decode

#: Fields of Progress, by libvirt's names for those in job statistics.
_FIELDS = {
    'rounds': 'memory_iteration', 'page_size': 'memory_page_size',
    'total_bytes': 'memory_total', 'transferred_bytes': 'memory_processed',
    'dirty_pages_per_s': 'memory_dirty_rate',
    'postcopy_requests': 'memory_postcopy_requests',
    'downtime_ms': 'downtime', 'setup_time_ms': 'setup_time',
    'total_time_ms': 'time_elapsed'}


def complete(last, job):
    """Return the final Progress of a migration that has completed.

    :param last: Progress of the last look at the source
    :param job: what virDomainGetJobStats says of it, may be empty
    :raises MalformedReply:
    """
    values = {field: decode.count(job[name], name)
              for field, name in _FIELDS.items() if name in job}
    pages = dataclasses.replace(
        last.pages,
        peer=decode.count(job.get('memory_normal', last.pages.peer),
                          'memory_normal'),
        zero=decode.count(job.get('memory_constant', last.pages.zero),
                          'memory_constant'))
    return dataclasses.replace(last, status='completed', eta_s=0.0,
                               remaining_bytes=0, pages=pages, error=None,
                               **values)
