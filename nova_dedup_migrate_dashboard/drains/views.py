# SPDX-License-Identifier: Apache-2.0
"""Drains: list, wizard (host, check, start) and detail.

The wizard keeps nothing in the session: its second page is the estimate of
the host, which the controller has made and keeps.
"""

from __future__ import annotations

from typing import Any
from urllib import parse
import uuid

from django import http
from django.contrib import messages
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import views

ORDERS = (
    ('longest', gettext_lazy('longest first: the shortest total time')),
    ('working_set', gettext_lazy('least written memory first')),
    ('shortest', gettext_lazy('shortest first: most are moved early')))
CHOICES = (
    ('wait', gettext_lazy('wait for an operator')),
    ('skip', gettext_lazy('leave on the host')),
    ('stop', gettext_lazy('shut down')),
    ('cold', gettext_lazy('shut down and migrate')))
_OVER = ('drained', 'partial', 'cancelled', 'failed', 'checked')
_ACTIONS = ('pause', 'resume', 'retry')
_MOVED = ('moved', 'stopped', 'gone')


def _show(drain_id: Any) -> str:
    return reverse('horizon:admin:dedup_drains:detail',
                   args=[str(drain_id)])


def _with_share(drain: dict[str, Any]) -> dict[str, Any]:
    total = sum(drain['counts'].values())
    moved = sum(drain['counts'].get(name, 0) for name in _MOVED)
    return {**drain, 'total': total, 'moved': moved,
            'share': moved / total if total else 0.0,
            'over': drain['state'] in _OVER}


class IndexView(views.PartView):
    page_title = gettext_lazy('Host Drains')
    template_name = 'dedup_migrate/drains.html'
    part = 'dedup_migrate/_drains.html'

    def load(self) -> dict[str, Any]:
        rows, more = client.first(client.proxy(self.request).drains())
        return {'drains': [_with_share(row) for row in rows], 'more': more,
                'status': _('%d drains are under way') % sum(
                    row['state'] not in _OVER for row in rows)}


class NewView(views.PartView):
    """The wizard's first page; POST makes the estimate of the second."""

    page_title = gettext_lazy('Drain a Host')
    part = 'dedup_migrate/_drain_new.html'

    def load(self) -> dict[str, Any]:
        rows, _more = client.first(client.proxy(self.request).hosts(), 1000)
        return {'hosts': rows, 'final': True,
                'chosen': self.request.GET.get('host', '')}

    def post(self, request: http.HttpRequest) -> http.HttpResponse:
        host = request.POST.get('host', '').strip()
        try:
            made = client.answers(client.proxy(request).create_estimate)(
                host=host)
        except (client.Unavailable, client.Refused) as error:
            messages.error(request, _('The check did not begin: %s') % error)
            return http.HttpResponseRedirect('?' + parse.urlencode(
                {'host': host}))
        return http.HttpResponseRedirect(reverse(
            'horizon:admin:dedup_drains:check', args=[made.id]))


class CheckView(views.PartView):
    """The wizard's second page: who can move, choices, limits, start."""

    page_title = gettext_lazy('Drain a Host: Check')
    part = 'dedup_migrate/_drain_check.html'
    seconds = 2

    def load(self) -> dict[str, Any]:
        one = client.proxy(self.request).get_estimate(
            str(self.kwargs['id'])).to_dict(computed=False)
        servers = one['servers'] or []
        blocked = [row for row in servers if row['blockers']]
        ready = one['state'] not in ('pending', 'running')
        return {
            'one': one, 'blocked': blocked, 'ready': ready, 'final': ready,
            'movable': [row for row in servers if not row['blockers']],
            'orders': ORDERS, 'choices': CHOICES, 'new_id': uuid.uuid4(),
            'status': _('The check has ended') if ready else
            _('The check runs')}


class StartView(views.ActionView):
    """Creates the drain; a form that is sent twice creates one."""

    def act(self, proxy: Any, data: Any) -> str:
        estimate = proxy.get_estimate(str(self.kwargs['id']))
        values: dict[str, Any] = {
            'id': data['drain_id'], 'host': estimate.host,
            'order': data.get('order', 'longest'),
            'on_blocked': data.get('on_blocked', 'wait')}
        if data.get('max_parallel'):
            values['max_parallel'] = _whole(data['max_parallel'])
        if data.get('deadline'):
            values['deadline'] = data['deadline'] + ':00Z'
        made = proxy.create_drain(**values)
        self._made = made.id
        return _('Host %s is being drained.') % estimate.host

    def target(self) -> str:
        made = getattr(self, '_made', None)
        return _show(made) if made else reverse(
            'horizon:admin:dedup_drains:check',
            args=[str(self.kwargs['id'])])


class DetailView(views.PartView):
    page_title = gettext_lazy('Host Drain')
    part = 'dedup_migrate/_drain.html'
    seconds = 3

    def load(self) -> dict[str, Any]:
        proxy = client.proxy(self.request)
        drain_id = str(self.kwargs['id'])
        one = _with_share(proxy.get_drain(drain_id).to_dict(computed=False))
        servers, more = client.first(proxy.drain_servers(drain_id), 1000)
        events, _more = client.first(proxy.drain_events(drain_id), 30)
        return {
            'one': one, 'events': events, 'more': more,
            'servers': sorted(servers, key=lambda row: row['position']),
            'final': one['over'],
            'status': _('%(state)s: %(moved)d of %(total)d moved') % {
                'state': one['state'], 'moved': one['moved'],
                'total': one['total']}}


class DrainActionView(views.ActionView):
    def act(self, proxy: Any, data: Any) -> str:
        action = self.kwargs['action']
        if action == 'cancel':
            body: dict[str, Any] = {'cancel': {
                'in_flight': data.get('in_flight', 'wait')}}
        elif action in _ACTIONS:
            body = {action: None}
        else:
            raise http.Http404()
        proxy.act_on_drain(str(self.kwargs['id']), body)
        return {'pause': _('No further live migration is started.'),
                'resume': _('The drain goes on.'),
                'retry': _('Instances that stayed are tried again.'),
                'cancel': _('The drain is being cancelled.')}[action]

    def target(self) -> str:
        return _show(self.kwargs['id'])


class SkipView(views.ActionView):
    def act(self, proxy: Any, data: Any) -> str:
        proxy.update_drain_server(str(self.kwargs['id']),
                                  str(self.kwargs['server']), skip=True)
        return _('The instance stays on the host.')

    def target(self) -> str:
        return _show(self.kwargs['id'])


def _whole(text: str) -> Any:
    """Return a number; other text as it is, for the controller to refuse."""
    return int(text) if text.isdigit() else text
