# SPDX-License-Identifier: Apache-2.0
"""Drains: list, wizard (host, check, start), one of them, its actions.

The wizard keeps nothing in the session: its second page is the estimate of
the host, which the controller has made and keeps.
"""

from __future__ import annotations

from typing import Any
from urllib import parse
import uuid

from django import http
from django import urls
from django.contrib import messages
from django.utils import dateparse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.utils.translation import ngettext
from horizon.utils import functions

from nova_dedup_migrate.osc import sdk
from nova_dedup_migrate_dashboard import client
from nova_dedup_migrate_dashboard import progress
from nova_dedup_migrate_dashboard import views
from nova_dedup_migrate_dashboard import words

_DONE = {'pause': gettext_lazy('No further instance is moved until the '
                               'drain is resumed.'),
         'resume': gettext_lazy('The drain goes on.'),
         'retry': gettext_lazy('Instances that stayed are tried again.')}

#: Beginning of the name of a field with the choice for one instance.
_CHOICE = 'choice-'
#: Most instances with a choice of their own, as the API has it.
_EACH = 500


def _url(name: str, *args: Any) -> str:
    return urls.reverse('horizon:admin:dedup_drains:' + name,
                        args=[str(one) for one in args])


class IndexView(views.PartView):
    page_title = gettext_lazy('Host Drains')
    template_name = 'dedup_migrate/drains.html'
    part = 'dedup_migrate/_drains.html'

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        rows, more = client.first(api.drains)
        drains = [progress.drain(row) for row in rows]
        active = sum(not row['over'] for row in drains)
        return {'drains': drains, 'more': more,
                'status': ngettext('%d drain is under way',
                                   '%d drains are under way', active)
                % active}


class NewView(views.PartView):
    """The wizard's first page; POST makes the estimate of the second."""

    page_title = gettext_lazy('Drain a Host')
    part = 'dedup_migrate/_drain_new.html'

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        rows, more = client.first(api.hosts, number=client.ALL)
        return {'hosts': rows, 'more': more, 'final': True,
                'chosen': self.request.GET.get('host', '')}

    def post(self, request: http.HttpRequest) -> http.HttpResponse:
        host = request.POST.get('host', '').strip()
        try:
            made = client.answers(
                lambda: views.proxy(request).create_estimate(host=host))()
        except (client.Unavailable, client.Refused) as error:
            messages.error(request, _('Host %(host)s was not checked. '
                                      '%(error)s') % {
                'host': host, 'error': views.problem(error)})
            return http.HttpResponseRedirect(
                _url('new') + '?' + parse.urlencode({'host': host}))
        return http.HttpResponseRedirect(_url('check', made.id))


class CheckView(views.PartView):
    """The wizard's second page: who can move, choices, limits, start."""

    page_title = gettext_lazy('Drain a Host: Check')
    part = 'dedup_migrate/_drain_check.html'
    seconds = 2

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        one = client.plain(api.get_estimate(str(self.kwargs['id'])))
        if one['host'] is None:
            raise http.Http404()
        rows = one['servers'] or []
        blocked = [{**row, 'own': ('wait', *progress.allowed(
                       row['blockers']))}
                   for row in rows if row['blockers']]
        ready = one['state'] not in ('pending', 'running')
        return {
            'one': one, 'ready': ready, 'final': ready, 'blocked': blocked,
            'movable': [row for row in rows if not row['blockers']],
            'orders': words.ORDERS.items(), 'choices': [
                (name, words.CHOICES[name])
                for name in ('wait', *progress.helpful(blocked))],
            'each': len(blocked) <= _EACH,
            'zone': functions.get_timezone(self.request),
            'engine_away': not ready and views.engine_away(api),
            'new_id': str(uuid.uuid4()),
            'status': _('The check has ended') if ready else
            _('The check runs')}


class StartView(views.ActionView):
    """Creates the drain; a form that is sent twice creates one."""

    made: str | None = None

    def act(self, api: sdk.Proxy, data: Any) -> str:
        host = api.get_estimate(str(self.kwargs['id'])).host
        values: dict[str, Any] = {
            'id': data.get('drain_id', ''), 'host': host,
            'order': data.get('order', 'longest'),
            'on_blocked': data.get('on_blocked', 'wait')}
        chosen = [
            {'server_id': name.removeprefix(_CHOICE), 'on_blocked': value}
            for name, value in data.items()
            if name.startswith(_CHOICE) and value]
        if chosen:
            values['servers'] = chosen
        if data.get('max_parallel'):
            values['max_parallel'] = _whole(data['max_parallel'])
        if data.get('deadline'):
            values['deadline'] = _time(data['deadline'], self.request)
        self.made = api.create_drain(**values).id
        return _('Host %s is being drained.') % host

    def target(self) -> str:
        return (_url('check', self.kwargs['id']) if self.made is None
                else _url('detail', self.made))


class DetailView(views.PartView):
    page_title = gettext_lazy('Host Drain')
    part = 'dedup_migrate/_drain.html'
    seconds = 3

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        drain_id = str(self.kwargs['id'])
        one = progress.drain(client.plain(api.get_drain(drain_id)))
        rows, more = client.first(api.drain_servers, drain_id,
                                  number=client.ALL)
        events, _more = client.first(api.drain_events, drain_id, number=30)
        live = ([] if one['over'] else client.first(
            api.migrations, number=client.ALL, state='running',
            host=one['host'])[0])
        servers = progress.servers(rows, live)
        names = {row['server_id']: row['server_name'] for row in servers}
        return {
            'one': one, 'more': more, 'servers': servers,
            'engine_away': not one['over'] and views.engine_away(api),
            'blocked': [row for row in servers
                        if row['group'] == 'blocked'],
            'events': [{**event, 'name': names.get(event['server_id'], '')}
                       for event in events],
            # The conditions are observed again for a week.
            'final': False,
            'status': self._status(one)}

    @staticmethod
    def _status(one: dict[str, Any]) -> str:
        if one['safe_to_power_off']:
            return _('Host %s is safe to power off') % one['host']
        return _('%(host)s: %(state)s, %(moved)d of %(total)d instances '
                 'moved') % {
            'host': one['host'], 'moved': one['groups']['moved'],
            'total': one['total'],
            'state': words.DRAIN.get(one['state'], (one['state'],))[0]}


class DrainActionView(views.ActionView):
    def act(self, api: sdk.Proxy, data: Any) -> str:
        action = self.kwargs['action']
        if action not in _DONE:
            raise http.Http404()
        api.act_on_drain(str(self.kwargs['id']), {action: None})
        return str(_DONE[action])

    def target(self) -> str:
        return _url('detail', self.kwargs['id'])


class CancelView(views.PartView):
    """Lets the operator choose what becomes of migrations that run."""

    page_title = gettext_lazy('Cancel a Drain')
    part = 'dedup_migrate/_drain_cancel.html'

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        one = progress.drain(client.plain(
            api.get_drain(str(self.kwargs['id']))))
        return {'one': one, 'final': True}


class CancelActionView(views.ActionView):
    def act(self, api: sdk.Proxy, data: Any) -> str:
        fate = self.kwargs['fate']
        if fate not in ('wait', 'abort'):
            raise http.Http404()
        api.act_on_drain(str(self.kwargs['id']),
                         {'cancel': {'in_flight': fate}})
        return _('The drain is being cancelled.')

    def target(self) -> str:
        return _url('detail', self.kwargs['id'])


class ServerView(views.ActionView):
    """Does with an instance of a drain what the operator has chosen."""

    def act(self, api: sdk.Proxy, data: Any) -> str:
        choice = self.kwargs['choice']
        ids = str(self.kwargs['id']), str(self.kwargs['server'])
        if choice == 'skip':
            api.update_drain_server(*ids, skip=True)
            return _('The instance stays on the host.')
        if choice not in words.CHOICES:
            raise http.Http404()
        api.update_drain_server(*ids, on_blocked=choice)
        return _('Chosen: %s') % words.CHOICES[choice]

    def target(self) -> str:
        return _url('detail', self.kwargs['id'])


def _whole(text: str) -> Any:
    """Return a number; other text as it is, for the controller to refuse."""
    return int(text) if text.isdecimal() and len(text) < 10 else text


def _time(text: str, request: http.HttpRequest) -> str:
    """Return a time in the user's zone as the API has it."""
    found = None
    try:
        found = dateparse.parse_datetime(text)
    except ValueError:
        pass
    if found is None:
        return text
    if timezone.is_naive(found):
        with timezone.override(functions.get_timezone(request)):
            found = timezone.make_aware(found)
    return found.isoformat()
