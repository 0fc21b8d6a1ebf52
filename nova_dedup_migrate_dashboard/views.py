# SPDX-License-Identifier: Apache-2.0
"""What the pages have in common.

A page is a template that extends dedup_migrate/base.html and a part, which
is rendered into it.  With ?part the part alone is sent, as JSON:

    html     the part
    status   a sentence for those who hear the page, when it has changed
    final    nothing will change any more: no further request
"""

from __future__ import annotations

from typing import Any

from django import http
from django.contrib import messages
from django.template import loader
from django.utils.translation import gettext as _
from django.views import generic

from nova_dedup_migrate_dashboard import client


class PartView(generic.TemplateView):
    """A page with a part that is fetched again and again.

    :cvar part: template of the part
    :cvar seconds: between two requests
    """

    template_name = 'dedup_migrate/page.html'
    part = ''
    page_title: Any = ''
    seconds = 5

    def load(self) -> dict[str, Any]:
        """Return the part's context; may have 'status' and 'final'.

        :raises Unavailable, Refused:
        """
        raise NotImplementedError

    def get(self, request: http.HttpRequest, *args: Any, **kwargs: Any
            ) -> http.HttpResponse:
        found, problem, status = {}, '', 200
        try:
            found = client.answers(self.load)()
        except client.Unavailable as error:
            problem = str(error)
        except client.Refused as error:
            if error.status == 404:
                raise http.Http404() from error
            problem, status = str(error), error.status
        context = self.get_context_data(
            problem=problem, page_title=self.page_title,
            part=self.part, seconds=self.seconds, **found)
        if 'part' not in request.GET:
            return self.render_to_response(context)
        return http.JsonResponse({
            'html': loader.render_to_string(self.part, context, request),
            'status': str(found.get('status', problem)),
            'final': bool(found.get('final')) or status in (401, 403)})


class ActionView(generic.View):
    """Does something and returns to a page; POST only."""

    http_method_names = ['post']

    def act(self, proxy: Any, data: Any) -> str:
        """Do it; return what has been done, for the user."""
        raise NotImplementedError

    def target(self) -> str:
        """Return the URL of the page that is shown then."""
        raise NotImplementedError

    def post(self, request: http.HttpRequest, *args: Any, **kwargs: Any
             ) -> http.HttpResponse:
        try:
            messages.success(request, client.answers(self.act)(
                client.proxy(request), request.POST))
        except client.Unavailable as error:
            messages.error(request, str(error))
        except client.Refused as error:
            messages.error(request, _('Not done: %s') % error)
        return http.HttpResponseRedirect(self.target())
