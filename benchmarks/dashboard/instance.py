# SPDX-License-Identifier: Apache-2.0
"""The part of drive.py about the page of an instance."""

import re

from benchmarks.dashboard import browser as browsers

_PAGE = '/admin/instances/%s/detail'
_TAB = '?tab=instance_details__dedup_live_migration'
_LINK = '[data-target="#instance_details__dedup_live_migration"]'
_POSTS = '/admin/dedup_migrations/instances/%s/%s'


def instance(browser):
    page = browser.page
    server = browser.world('id build-1')
    with browser.check('instance: tab'):
        browser.open(_PAGE % server)
        page.click(_LINK)
        page.wait_for_selector('#dedup-estimate')
        assert not browser.has('#dedup-verdict')
        assert not browser.has('#dedup-problem')
    browsers.accessible(browser, 'instance')
    with browser.check('instance: estimate, by keyboard'):
        browser.tab_to('dedup-estimate')
        page.keyboard.press('Enter')
        browser.wait('can migrate live', '#dedup-verdict')
        browser.wait('build-1', '#dedup-verdict')
        assert page.locator('#dedup-predicted tbody tr').count() == 2
        assert re.search(r'\d+ ms', browser.text('#dedup-predicted'))
        assert re.search(r'\d+ MB', browser.text('#dedup-predicted'))
        # The messages of Horizon fade.
        page.wait_for_timeout(6000)
        browser.shoot('instance')
    browsers.accessible(browser, 'instance, estimate')
    estimate = page.url.partition('estimate=')[2]
    with browser.check('instance: the page can be loaded again'):
        page.reload()
        browser.wait('can migrate live', '#dedup-verdict')
    _posts(browser, server)
    with browser.check('instance: migrate live'):
        browser.world('hold')
        browser.press('#dedup-migrate')
        browser.wait('on its way from', '#dedup-running')
        assert browser.world('requests build-1') == '1'
        assert not browser.has('#dedup-migrate')
        page.wait_for_timeout(4000)
        browser.shoot('instance-running')
    browsers.accessible(browser, 'instance that migrates')
    with browser.check('instance: what Nova refuses'):
        answer = _post(browser, server, 'migrate')
        assert 'Nova refuses it: the server is MIGRATING' in answer.text()
    with browser.check('instance: the end is shown without a click'):
        browser.world('release')
        browser.wait('completed', '#dedup-history')
        page.wait_for_selector('#dedup-migrate')
    with browser.check("instance: Horizon's own form, with a host"):
        page.click('#dedup-migrate-live')
        page.wait_for_selector('.modal form [type=submit]')
        page.click('.modal form [type=submit]')
        page.wait_for_url('**/admin/instances/')
        assert browser.world('requests build-1') == '3'
    with browser.check('instance: that cannot migrate live, with reasons'):
        other = browser.world('id gpu-3')
        browser.open(_PAGE % other + _TAB)
        browser.press('#dedup-estimate')
        browser.wait('cannot migrate live now', '#dedup-verdict')
        browser.wait('PCI device', '#dedup-verdict')
        assert not browser.has('#dedup-migrate')
        browser.shoot('instance-blocked')
    browsers.accessible(browser, 'instance that cannot migrate')
    with browser.check("instance: another's estimate is not shown"):
        for given in (estimate, '<b>', '../drains'):
            browser.open(_PAGE % other + _TAB + '&estimate=' + given)
            page.wait_for_selector('#dedup-estimate')
            assert not browser.has('#dedup-verdict')
            assert not browser.has('#dedup-problem')
    with browser.check('instance: a name with markup is text'):
        name = browser.world('name HOSTILE')
        browser.open(_PAGE % browser.world('id HOSTILE') + _TAB)
        browser.press('#dedup-estimate')
        page.wait_for_selector('#dedup-verdict')
        shown = browser.text('#dedup-verdict')
        assert name.split('{$')[0] in shown, shown
        # The title of Horizon's page has the name, too.
        assert page.title() != 'hacked'


def _posts(browser, server):
    with browser.check('instance: no change without a CSRF token, or by GET'):
        for action in ('estimate', 'migrate'):
            path = browser.url + _POSTS % (server, action)
            answer = browser.page.request.post(path, max_redirects=0)
            assert 'csrf_failure' in answer.headers['location'], answer
            answer = browser.page.request.get(path)
            assert answer.status == 405, answer.status
        assert browser.world('requests build-1') == '0'


def _post(browser, server, action):
    """POST as the form does, of a user who has a valid CSRF token."""
    token = next(one['value'] for one in browser.page.context.cookies()
                 if one['name'] == 'csrftoken')
    return browser.page.request.post(
        browser.url + _POSTS % (server, action),
        form={'csrfmiddlewaretoken': token})


def refused(browser):
    """A user who is no operator; log_in has been done for alice."""
    server = browser.world('id build-1')
    before = browser.world('requests build-1')
    with browser.check('forbidden: a user without a role cannot migrate'):
        for action in ('estimate', 'migrate'):
            answer = _post(browser, server, action)
            assert answer.status == 403, answer.status
        assert browser.world('requests build-1') == before
        browser.open(_PAGE % server)
        assert not browser.has(_LINK)


def not_permitted(browser):
    """A user who sees all, and whom the controller permits nothing."""
    with browser.check('forbidden: the controller refuses an estimate'):
        browser.open(_PAGE % browser.world('id build-1') + _TAB)
        browser.press('#dedup-estimate')
        browser.wait('does not permit', '.alert-danger')
        assert not browser.has('#dedup-verdict')


def away(browser):
    """While the controller does not answer."""
    with browser.check('controller away: the tab of an instance'):
        browser.open(_PAGE % browser.world('id build-1') + _TAB)
        browser.wait('does not answer', '#dedup-problem')
        assert not browser.has('#dedup-migrate')
