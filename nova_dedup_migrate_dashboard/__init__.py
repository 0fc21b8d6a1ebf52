# SPDX-License-Identifier: Apache-2.0
"""The Horizon plugin: Admin > Compute > Live Migrations, Host Drains, Hosts.

It is a client of the controller's API and nothing else.  Pages are rendered
by the server; a page that changes has one part, rendered by a template of
its own, and fetches that part again every few seconds (static/dedup_migrate/
poll.js).  So there is one description of each page, and no state in the
browser.
"""
