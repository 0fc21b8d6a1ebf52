# SPDX-License-Identifier: Apache-2.0
"""What the pages have in common.

A page is a template that extends dedup_migrate/page.html, and a part that
is rendered into it.  With ?part=1 the part alone is sent, as JSON:

    html     the part
    status   a sentence for those who hear the page, when it has changed
    final    nothing will change any more: no further request
"""

from __future__ import annotations

from typing import Any

from django import http
from django.conf import settings
from django.contrib import messages
from django.template import loader
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views import generic
import horizon
from horizon import exceptions
from horizon.utils import functions
from openstack_dashboard.api import base

from nova_dedup_migrate.osc import sdk
from nova_dedup_migrate_dashboard import client


def proxy(request: http.HttpRequest) -> sdk.Proxy:
    """Return the controller's API for the user of a request.

    :raises Unavailable: the region of the user has none
    """
    user: Any = request.user
    try:
        url = base.url_for(request, sdk.SERVICE_TYPE)
    except exceptions.ServiceCatalogException as error:
        raise client.Unavailable() from error
    verify: Any = not getattr(settings, 'OPENSTACK_SSL_NO_VERIFY', False)
    return client.proxy(
        url, user.token.id,
        verify and (getattr(settings, 'OPENSTACK_SSL_CACERT', None) or True))


def problem(error: Exception) -> str:
    """Return what a user reads about client.Unavailable or Refused."""
    if isinstance(error, client.Unavailable):
        return _('The migration controller does not answer. Migrations and '
                 'drains go on without this page, which tries again every '
                 'few seconds. If it stays so, look at the log of '
                 'nova-dedup-migrate on the host of the controller.')
    if isinstance(error, NovaRefused):
        return _('Nova refuses it: %s') % error
    if isinstance(error, client.Refused) and error.status == 401:
        return _('The migration controller does not accept your session '
                 'any more. Log out and in again.')
    if isinstance(error, client.Refused) and error.status == 403:
        return _('The migration controller does not permit this: %s. Its '
                 'policy.yaml decides which roles may.') % error
    return str(error)


def engine_away(api: sdk.Proxy) -> bool:
    """Return whether no engine works: nothing is checked or moved then.

    False for those who may not list the engines.
    """
    try:
        return not any(one['state'] == 'up' for one in client.answers(
            lambda: [client.plain(found) for found in api.services()])())
    except client.Refused:
        return False


def may_administer(request: http.HttpRequest) -> bool:
    """Return whether the user of a request sees the Admin dashboard.

    Horizon hides the dashboard from others, and does not keep them from the
    URLs of its panels.
    """
    return bool(horizon.get_dashboard('admin').can_access(
        {'request': request}))


class NovaRefused(client.Refused):
    """Nova refuses a request, or does not answer it."""


class AdminView(generic.View):
    """Only for those who see the Admin dashboard."""

    def dispatch(self, request: http.HttpRequest, *args: Any, **kwargs: Any
                 ) -> http.HttpResponse:
        if not may_administer(request):
            raise exceptions.NotAuthorized(_('Admin dashboard'))
        return super().dispatch(request, *args, **kwargs)


class PartView(AdminView, generic.TemplateView):
    """A page with a part that is fetched again and again.

    :cvar part: template of the part
    :cvar seconds: between two requests
    """

    template_name = 'dedup_migrate/page.html'
    part = ''
    page_title: Any = ''
    seconds = 5

    def load(self, api: sdk.Proxy) -> dict[str, Any]:
        """Return the part's context; may have 'status' and 'final'.

        :raises Unavailable, Refused:
        """
        raise NotImplementedError

    def get(self, request: http.HttpRequest, *args: Any, **kwargs: Any
            ) -> http.HttpResponse:
        found: dict[str, Any] = {}
        trouble, status = '', 200
        try:
            found = client.answers(self.load)(proxy(request))
        except client.Unavailable as error:
            trouble, status = problem(error), 503
        except client.Refused as error:
            if error.status == 404:
                raise http.Http404() from error
            trouble, status = problem(error), error.status
        context = self.get_context_data(
            problem=trouble, page_title=self.page_title, part=self.part,
            seconds=self.seconds, **found)
        # Horizon does not activate the user's time zone for AJAX.
        with timezone.override(functions.get_timezone(request)):
            if 'part' not in request.GET:
                return self.render_to_response(
                    context, status=status if status != 503 else 200)
            return http.JsonResponse({
                'html': loader.render_to_string(self.part, context, request),
                'status': str(found.get('status', trouble)),
                'final': bool(found.get('final')) or status in (401, 403)})


class ActionView(AdminView):
    """Does something and returns to a page; POST only."""

    http_method_names = ['post']

    def act(self, api: sdk.Proxy, data: Any) -> str:
        """Do it; return what has been done, for the user."""
        raise NotImplementedError

    def target(self) -> str:
        """Return the URL of the page that is shown then."""
        raise NotImplementedError

    def post(self, request: http.HttpRequest, *args: Any, **kwargs: Any
             ) -> http.HttpResponse:
        try:
            messages.success(request, client.answers(self.act)(
                proxy(request), request.POST))
        except (client.Unavailable, client.Refused) as error:
            messages.error(request, _('Nothing was changed. %s')
                           % problem(error))
        return http.HttpResponseRedirect(self.target())
