# SPDX-License-Identifier: Apache-2.0
"""The Debian guest: a web server and a database worth migrating.

``image`` builds its disk, ``client`` gives it orders.
"""
