# SPDX-License-Identifier: Apache-2.0
"""Microversions of the API.

Requests name one in the header ``OpenStack-API-Version: dedup-migrate
1.0``; without it they get the oldest one.

* 1.0 - the first.
"""

SERVICE_TYPE = 'dedup-migrate'
HEADER = 'OpenStack-API-Version'
VERSIONS = ['1.0']
MIN = VERSIONS[0]
MAX = VERSIONS[-1]
