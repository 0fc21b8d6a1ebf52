# SPDX-License-Identifier: Apache-2.0
"""Releases of this project that others are upgraded from."""

#: Commit of the release before, as long as there is no tag of one.
PREVIOUS = 'f9f735c4f3cc44acdd9de07ab70505786a1ba84c'
