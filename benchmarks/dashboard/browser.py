# SPDX-License-Identifier: Apache-2.0
"""A browser for drive.py: pages, checks, screenshots, the world's line."""

import contextlib
import pathlib
import re
import sys
import time

from axe_playwright_python import sync_playwright as axe
from playwright import sync_api

#: Milliseconds for anything on a page.
PATIENCE = 120_000
_PROGRAM = '/usr/bin/chromium'
_OPTIONS = ('--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage')
#: Levels of WCAG that the parts have to reach.
_WCAG = {'runOnly': {'type': 'tag', 'values': [
    'wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']}}
PART = '#dedup-part'


def accessible(browser, name, *selectors):
    """Check the part of a page, or what the selectors name, with axe."""
    with browser.check('%s: accessible (axe, WCAG 2.1 AA)' % name):
        found = [one for selector in selectors or (PART,)
                 for one in browser.violations(selector)]
        assert not found, found
    with browser.check('%s: no script, style or handler within' % name):
        assert not browser.markup(), browser.markup()


class Browser:
    """:param url: of Horizon
    :param directory: for screenshots
    :ivar page: of Playwright, of the user who is logged in
    :ivar failed: whether a check was not met
    """

    def __init__(self, playwright, url, directory):
        self.url = url
        self.failed = False
        self._directory = pathlib.Path(directory)
        self._browser = playwright.chromium.launch(
            executable_path=_PROGRAM, args=list(_OPTIONS))
        self.page = None
        #: What scripts did that they must not: errors, handlers, dialogs
        self.faults = []
        #: (time, URL) of requests for a part
        self.polls = []
        #: URLs of pages for which Horizon had an error
        self.failures = []
        self._axe = axe.Axe()

    def close(self):
        self._browser.close()

    def log_in(self, user, language='en', password='x'):
        if self.page is not None:
            self.page.context.close()
        context = self._browser.new_context(
            viewport={'width': 1280, 'height': 800}, locale=language)
        context.set_default_timeout(PATIENCE)
        page = self.page = context.new_page()
        page.on('pageerror', lambda error: self.faults.append(str(error)))
        page.on('dialog', lambda dialog: (
            self.faults.append('dialog: ' + dialog.message),
            dialog.dismiss()))
        page.on('console', lambda message: self.faults.append(message.text)
                if 'Content Security Policy' in message.text else None)
        page.on('request', lambda request: self.polls.append(
            (time.monotonic(), request.url))
            if 'part=1' in request.url else None)
        page.on('response', lambda response: self.failures.append(
            '%s: %d' % (response.url, response.status))
            if response.status >= 500 and '/admin/' in response.url
            else None)
        self.open('/auth/login/')
        page.fill('#id_username', user)
        page.fill('#id_password', password)
        page.click('#loginBtn')
        page.wait_for_url(lambda url: '/auth/login' not in url)
        # The next page has what Horizon's overview lacks of this cloud.
        self.open('/settings/')

    @contextlib.contextmanager
    def check(self, name):
        """Print whether what is done within is met."""
        begun = time.monotonic()
        try:
            yield
        except Exception as error:
            self.failed = True
            with contextlib.suppress(sync_api.Error):
                self.page.screenshot(
                    path=self._directory / ('failed-%s.png' % re.sub(
                        r'\W+', '-', name)), full_page=True)
            print('fails %s: %s' % (name, ' '.join(
                str(error).split())[:400] or repr(error)), flush=True)
        else:
            print('ok %s: yes (%.0f s)' % (name, time.monotonic() - begun),
                  flush=True)

    def shoot(self, name):
        """Save what a user sees without scrolling, for the documentation."""
        self.page.screenshot(
            path=self._directory / ('dashboard-%s.png' % name))

    def open(self, path):
        return self.page.goto(self.url + path)

    def text(self, selector=PART):
        return self.page.inner_text(selector)

    def wait(self, text, selector=PART):
        """Wait until a text is there."""
        sync_api.expect(self.page.locator(selector).first).to_contain_text(
            text, timeout=PATIENCE)

    def wait_polls(self, number):
        """Wait until the page has fetched its part again so often."""
        self.polls.clear()
        end = time.monotonic() + PATIENCE / 1000
        while len(self.polls) < number:
            assert time.monotonic() < end, 'the page is not refreshed'
            self.page.wait_for_timeout(200)
        return list(self.polls)

    def has(self, selector):
        return self.page.locator(selector).count() > 0

    def press(self, selector):
        """Click on what a refresh may put another one in place of."""
        self.page.locator(selector).click()

    def tab_to(self, identity):
        """Move the focus to an element as those without a mouse do."""
        for _ in range(120):
            self.page.keyboard.press('Tab')
            if self.page.evaluate('document.activeElement.id') == identity:
                return
        raise AssertionError('%s cannot be reached with Tab' % identity)

    def world(self, command):
        """Have the world do something; return its answer."""
        print('world ' + command, flush=True)
        return sys.stdin.readline().rstrip('\n')

    def violations(self, selector='#dedup-part'):
        """Return what axe finds against WCAG in a part of the page."""
        found = self._axe.run(self.page, context=selector, options=_WCAG)
        return ['%s: %s (%s)' % (
            one['id'], one['help'], one['nodes'][0]['html'][:120])
            for one in found.response['violations']]

    def markup(self):
        """Return what a policy against scripts within pages forbids."""
        sent = self.page.request.get(self.url + self.page.get_attribute(
            PART, 'data-url')).json()['html']
        return re.findall(r'<script|<style|\son\w+="|\sstyle="|javascript:',
                          sent)
