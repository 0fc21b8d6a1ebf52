# SPDX-License-Identifier: Apache-2.0
"""Drives the panels: drive.py URL DIRECTORY [PART...] <answers >lines

Writes a line for each check, ``ok NAME: ...`` or ``fails NAME: REASON``.  A
line ``world COMMAND`` is for the world, which answers with a line.  Runs in
the environment that has Playwright, and imports nothing of the project.
"""

import itertools
import re
import sys

from playwright import sync_api

from benchmarks.dashboard import browser as browsers
from benchmarks.dashboard import instance

_MIGRATIONS = '/admin/dedup_migrations/'
_DRAINS = '/admin/dedup_drains/'
_HOSTS = '/admin/dedup_hosts/'


def hosts(browser):
    browser.log_in('root')
    browser.open(_HOSTS)
    with browser.check('hosts: agents, QEMU, slots'):
        browser.wait('compute4')
        browser.wait('leaves nothing out')
        browser.wait('0 of 2')
        browser.wait('1 agent is down')
        browser.shoot('hosts')
    browsers.accessible(browser, 'hosts')


def wizard(browser):
    page = browser.page
    with browser.check('wizard: from the host to the check'):
        browser.open(_HOSTS)
        page.locator('tr', has_text='compute1').get_by_text('Drain').click()
        assert page.locator('#dedup-drain-host').input_value() == 'compute1'
        browsers.accessible(browser, 'wizard, host')
        browser.press('#dedup-check')
        page.wait_for_selector('#dedup-start')
    with browser.check('wizard: each reason, choices, estimate'):
        browser.wait('5 instances can leave compute1, 1 cannot now',
                     '#dedup-verdict')
        browser.wait('PCI device', '#dedup-blocked')
        browser.wait('gpu-1', '#dedup-blocked')
        browser.wait('moves alone', '#dedup-movable')
        assert page.locator('#dedup-on-blocked option').count() == 4
        browser.shoot('drain-check')
    browsers.accessible(browser, 'wizard, check')
    with browser.check('wizard: a text that is no time is refused'):
        page.evaluate("document.getElementById('dedup-deadline').type ="
                      " 'text'")
        page.fill('#dedup-deadline', 'tomorrow')
        browser.press('#dedup-start')
        browser.wait('Nothing was changed', '.alert-danger')
    with browser.check('wizard: starts the drain'):
        page.wait_for_selector('#dedup-start')
        page.fill('#dedup-parallel', '2')
        browser.world('hold')
        browser.press('#dedup-start')
        page.wait_for_selector('#dedup-banner')


def drain(browser):
    page = browser.page
    url = page.url
    with browser.check('drain: progress, rest, reasons'):
        browser.wait('Do not power off compute1', '#dedup-banner')
        page.wait_for_selector('#dedup-servers .dedup-bar')
        browser.wait('in the queue', '#dedup-servers')
        browser.wait('gpu-1', '#dedup-blocked')
        page.wait_for_timeout(4000)
        browser.shoot('drain-running')
    browsers.accessible(browser, 'drain')
    with browser.check('drain: a name with markup is text'):
        name = browser.world('name HOSTILE')
        assert '<script>document.title=' in browser.text(), browser.text()
        assert name.split('{$')[0] in browser.text()
    with browser.check('drain: the page refreshes its part alone'):
        polls = browser.wait_polls(3)
        assert all(one.startswith(url) for _, one in polls), polls
        assert all(later - earlier > 2.5 for (earlier, _), (later, _)
                   in itertools.pairwise(polls)), polls
    with browser.check('drain: focus stays where it was'):
        page.focus('#dedup-pause')
        browser.wait_polls(3)
        assert page.evaluate('document.activeElement.id') == 'dedup-pause'
    with browser.check('live migrations: those that run'):
        browser.open(_MIGRATIONS)
        page.wait_for_selector('#dedup-running .dedup-bar')
        page.wait_for_selector('#dedup-running .dedup-parts')
        browser.wait('MB/s', '#dedup-running')
        browser.shoot('live-migrations')
    browsers.accessible(browser, 'live migrations', browsers.PART,
                        '.dedup-filter')
    with browser.check('live migration: one that runs'):
        page.locator('#dedup-running a').first.click()
        page.wait_for_selector('.dedup-bar')
        browser.wait('Time left')
        browser.wait('Why it is not over')
        browser.shoot('live-migration-running')
    with browser.check('drain: pause and resume'):
        page.goto(url)
        browser.press('#dedup-pause')
        page.wait_for_selector('#dedup-resume')
        browser.wait('paused', 'h2')
        browser.press('#dedup-resume')
        page.wait_for_selector('#dedup-pause')
        browser.world('release')
    with browser.check('drain: waits for a choice'):
        browser.wait('waits for your choice', 'h2')
        browser.shoot('drain-choice')
    browsers.accessible(browser, 'drain with a choice')
    with browser.check('drain: a failed live migration was tried again'):
        assert browser.world('requests cache-1') == '2'
    with browser.check('drain: the choice is carried out'):
        page.locator('#dedup-blocked button',
                     has_text='Shut down and migrate').click()
        browser.wait('is safe to power off', '#dedup-banner')
        browser.wait('6 of 6', '#dedup-moved')
        assert not browser.has('#dedup-pause')
        assert browser.world('host gpu-1') != 'compute1'
        page.wait_for_timeout(5000)
        browser.shoot('drain-done')
    browsers.accessible(browser, 'drain that has ended')
    with browser.check('drain: those who hear the page hear of it'):
        assert 'safe to power off' in page.text_content('#dedup-status')
    with browser.check('drain: nova-compute stays disabled'):
        assert browser.world('service compute1') == 'disabled'
    with browser.check('drains: list'):
        browser.open(_DRAINS)
        browser.wait('6 of 6 moved')
        browser.shoot('drains')
    browsers.accessible(browser, 'drains')


def history(browser):
    page = browser.page
    with browser.check('history: results, times, shares'):
        browser.open(_MIGRATIONS)
        browser.wait('completed', '#dedup-history')
        browser.wait('failed', '#dedup-history')
    with browser.check('history: filter'):
        page.select_option('#dedup-state', 'failed')
        page.get_by_role('button', name='Filter').click()
        browser.wait('cache-1', '#dedup-history')
        assert 'web-1' not in browser.text('#dedup-history')
        page.fill('#dedup-host', 'nowhere')
        page.get_by_role('button', name='Filter').click()
        browser.wait('fits the filter')
    with browser.check('history: a filter that the controller refuses'):
        page.fill('#dedup-host', '<b>')
        page.get_by_role('button', name='Filter').click()
        page.wait_for_selector('#dedup-problem')
        assert '<b>' not in page.inner_html('#dedup-problem')
    with browser.check('live migration: chart, rounds, plan, prediction'):
        browser.open(_MIGRATIONS)
        page.locator('#dedup-history tr', has_text='completed').locator(
            'a', has_text='web-1').first.click()
        page.wait_for_selector('.dedup-chart polygon')
        assert page.locator('#dedup-rounds tbody tr').count() == 4
        browser.wait('Chosen: ', '#dedup-plan')
        browser.wait('An ordinary migration, predicted', '#dedup-predicted')
        browser.shoot('live-migration')
    browsers.accessible(browser, 'live migration')
    with browser.check('live migration: one that has ended is not polled'):
        browser.polls.clear()
        page.wait_for_timeout(7000)
        assert not browser.polls, browser.polls


def abort(browser):
    """By keyboard alone."""
    page = browser.page
    keyboard, go = page.keyboard, browser.tab_to

    with browser.check('keyboard: a drain is begun'):
        browser.open(_DRAINS)
        go('dedup-new')
        keyboard.press('Enter')
        page.wait_for_selector('#dedup-drain-host')
        go('dedup-drain-host')
        keyboard.type('compute2')
        go('dedup-check')
        keyboard.press('Enter')
        page.wait_for_selector('#dedup-start')
        # One of two instances that cannot move gets a choice of its own.
        go('dedup-choice-' + browser.world('id gpu-2'))
        keyboard.type('Leave')
        browser.shoot('drain-choices')
        browser.world('hold')
        go('dedup-start')
        keyboard.press('Enter')
        page.wait_for_selector('#dedup-banner')
        page.wait_for_selector('#dedup-servers .dedup-bar')
    with browser.check('wizard: a choice for one instance'):
        row = page.locator('#dedup-servers tr', has_text='gpu-2')
        sync_api.expect(row).to_contain_text('skipped, stays')
        browser.wait('gpu-3', '#dedup-blocked')
        assert 'gpu-2' not in browser.text('#dedup-blocked')
        page.focus('body')
    with browser.check('keyboard: and cancelled, with an abort'):
        go('dedup-cancel')
        keyboard.press('Enter')
        page.wait_for_selector('#dedup-cancel-abort')
        browser.wait('on their way')
        browser.shoot('drain-cancel')
        browsers.accessible(browser, 'cancel a drain')
        go('dedup-cancel-abort')
        keyboard.press('Enter')
        browser.wait('cancelled', 'h2')
        browser.wait('Do not power off compute2', '#dedup-banner')
        browser.shoot('drain-cancelled')
    with browser.check('abort: the instances stay, nova-compute is enabled'):
        assert browser.world('host mail-1') == 'compute2'
        assert browser.world('host mail-2') == 'compute2'
        assert browser.world('service compute2') == 'enabled'
    browser.world('release')
    with browser.check('abort: the live migrations were cancelled'):
        browser.open(_MIGRATIONS + '?state=cancelled')
        browser.wait('mail-1', '#dedup-history')
        browser.wait('mail-2', '#dedup-history')


def away(browser):
    page = browser.page
    with browser.check('controller away: a page that is open shows it'):
        browser.open(_DRAINS)
        browser.wait('compute1')
        browser.world('stop')
        page.wait_for_selector('#dedup-problem')
        browser.shoot('controller-away')
    browsers.accessible(browser, 'controller away')
    with browser.check('controller away: each panel has a sentence'):
        for path in (_MIGRATIONS, _HOSTS, _DRAINS, _DRAINS + 'new'):
            browser.open(path)
            browser.wait('does not answer', '#dedup-problem')
    instance.away(browser)
    with browser.check('controller back: the page goes on by itself'):
        browser.open(_MIGRATIONS)
        browser.wait('does not answer', '#dedup-problem')
        browser.world('start')
        browser.wait('web-1')
        assert not browser.has('#dedup-problem')


def forbidden(browser):
    with browser.check('forbidden: the controller refuses a drain'):
        browser.log_in('auditor')
        browser.open(_DRAINS)
        browser.wait('compute1')
        browser.open(_DRAINS + 'new')
        browser.press('#dedup-check')
        browser.wait('does not permit', '.alert-danger')
        browser.shoot('forbidden')
    instance.not_permitted(browser)
    with browser.check('forbidden: a user without a role sees no panel'):
        browser.log_in('alice')
        for path in (_MIGRATIONS, _HOSTS, _DRAINS):
            response = browser.open(path)
            assert response.status == 403, response.status
            assert not browser.has(browsers.PART)
            response = browser.open(path + '?part=1')
            assert response.status == 403, response.status
    instance.refused(browser)


def expired(browser):
    browser.log_in('root')
    page = browser.page
    with browser.check('expired: a page says what a token that is refused'
                       ' needs'):
        browser.open(_HOSTS)
        browser.wait('compute1')
        browser.world('revoke root')
        browser.wait('Log out and in again', '#dedup-problem')
        browser.shoot('expired')
        browser.polls.clear()
        page.wait_for_timeout(12000)
        assert not browser.polls, browser.polls
        browser.world('restore root')
        page.reload()
        browser.wait('compute1')
    with browser.check('expired: a page whose session is over leads to the'
                       ' log-in'):
        page.context.clear_cookies()
        page.wait_for_url('**/auth/login/**')
    with browser.check('expired: nothing is shown without a session'):
        browser.open(_DRAINS)
        assert '/auth/login' in page.url, page.url
        assert not browser.has(browsers.PART)


def engine(browser):
    """The API answers, and nobody works."""
    browser.log_in('root')
    page = browser.page
    browser.world('engine-away')
    with browser.check('engine away: a check says why it does not end'):
        browser.open(_DRAINS + 'new?host=compute3')
        browser.press('#dedup-check')
        page.wait_for_selector('#dedup-engine')
        browser.wait('are being checked')
        browser.shoot('engine-away')
    browsers.accessible(browser, 'engine away')
    with browser.check('engine back: the check goes on by itself'):
        browser.world('restart')
        page.wait_for_selector('#dedup-start')
        assert not browser.has('#dedup-engine')


def german(browser):
    with browser.check('German: panels, states, plurals'):
        browser.log_in('root', 'de')
        browser.open(_HOSTS)
        browser.wait('1 Agent ist ausgefallen')
        browser.open(_MIGRATIONS)
        browser.wait('abgeschlossen', '#dedup-history')
        browser.shoot('german')
    browsers.accessible(browser, 'German')


PARTS = (hosts, wizard, drain, history, abort, instance.instance, away,
         forbidden, expired, engine, german)


def main():
    url, directory, *only = sys.argv[1:]
    with sync_api.sync_playwright() as playwright:
        browser = browsers.Browser(playwright, url, directory)
        for part in PARTS:
            if not only or part.__name__ in only or part is hosts:
                with browser.check(part.__name__ + ': to its end'):
                    part(browser)
        with browser.check('no name was run, no policy was violated'):
            found = [one for one in browser.faults
                     if re.search('hacked|dialog|script-src-attr|dedup',
                                  one)]
            assert not found, found
            assert 'hacked' not in browser.page.title()
        with browser.check('no page failed'):
            assert not browser.failures, browser.failures
        browser.close()
    return browser.failed


if __name__ == '__main__':
    sys.exit(main())
