# SPDX-License-Identifier: Apache-2.0
"""The Horizon plugin: Admin > Compute > Live Migrations, Host Drains, Hosts.

It is a client of the controller's API and nothing else.  The server renders
the pages.  A page that changes has one part with a template of its own,
which static/dedup_migrate/poll.js fetches again every few seconds; so each
page is described once, and the browser keeps no state.

client, charts and progress do without Django, and are tested without it.
"""
