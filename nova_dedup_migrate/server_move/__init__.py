# SPDX-License-Identifier: Apache-2.0
"""Moves a server and its volumes to other hosts, as a client of the cloud.

cloud has the calls of Nova and Cinder, obstacles what keeps a move from
beginning, mover the order of the steps.
"""
