# SPDX-License-Identifier: Apache-2.0
"""The API's words for users, with the classes of their colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

#: State -> (text, class): good, busy, attention, bad, idle.
Words = Mapping[str, tuple[Any, str]]

MIGRATION: Words = {
    'running': (_('running'), 'busy'),
    'completed': (_('completed'), 'good'),
    'cancelled': (_('cancelled'), 'idle'),
    'failed': (_('failed'), 'bad')}
DRAIN: Words = {
    'pending': (_('waits for an engine'), 'idle'),
    'checking': (_('checks the instances'), 'busy'),
    'running': (_('moves instances'), 'busy'),
    'paused': (_('paused'), 'attention'),
    'blocked': (_('waits for your choice'), 'attention'),
    'verifying': (_('verifies that the host is empty'), 'busy'),
    'cancelling': (_('is being cancelled'), 'attention'),
    'checked': (_('only checked'), 'idle'),
    'drained': (_('drained'), 'good'),
    'partial': (_('ended, instances stay'), 'attention'),
    'cancelled': (_('cancelled'), 'idle'),
    'failed': (_('failed'), 'bad')}
SERVER: Words = {
    'queued': (_('in the queue'), 'idle'),
    'retry_wait': (_('will be tried again'), 'attention'),
    'blocked': (_('cannot move'), 'attention'),
    'submitting': (_('is requested'), 'busy'),
    'migrating': (_('migrates'), 'busy'),
    'verifying': (_('is verified'), 'busy'),
    'moved': (_('moved'), 'good'),
    'stopped': (_('shut down, stays'), 'good'),
    'gone': (_('has left the host'), 'good'),
    'skipped': (_('skipped, stays'), 'attention'),
    'failed': (_('failed, stays'), 'bad'),
    'cancelled': (_('cancelled, stays'), 'idle')}
#: Groups of progress.GROUPS.
GROUPS: Mapping[str, Any] = {
    'moved': _('moved'), 'flying': _('on their way'),
    'waiting': _('in the queue'), 'blocked': _('cannot move'),
    'stays': _('stay')}
STRATEGIES: Mapping[str, Any] = {
    'stock': _('ordinary'), 'shared_nas': _('pages from shared storage'),
    'page_cache': _('page cache from storage'),
    'snapshot': _('pages from a snapshot'),
    'compress': _('compressed')}
PATHS: Mapping[str, Any] = {
    'peer': _('sent over the network'), 'storage': _('read from storage'),
    'zero': _('zero pages')}
ORDERS: Mapping[str, Any] = {
    'longest': _('longest first: the host is empty soonest'),
    'shortest': _('shortest first: most instances have moved early'),
    'working_set': _('least written memory first')}
CHOICES: Mapping[str, Any] = {
    'wait': _('Wait until the reason is gone'),
    'skip': _('Leave on the host'),
    'stop': _('Shut down and leave on the host'),
    'cold': _('Shut down and migrate')}
CONDITIONS: Mapping[str, Any] = {
    'ComputeServiceDisabled': _('nova-compute is disabled'),
    'NoServersRun': _('no instance of Nova runs there'),
    'NoMigrations': _('no migration from or to it'),
    'NoGuestsSeen': _('its agent sees no guest')}
CONFIDENCE: Mapping[str, Any] = {
    'high': _('high'), 'medium': _('medium'), 'low': _('low')}
KINDS: Mapping[str, Words] = {
    'migration': MIGRATION, 'drain': DRAIN, 'server': SERVER}
NAMES: Mapping[str, Mapping[str, Any]] = {
    'group': GROUPS, 'strategy': STRATEGIES, 'path': PATHS,
    'order': ORDERS, 'choice': CHOICES, 'condition': CONDITIONS,
    'confidence': CONFIDENCE}
