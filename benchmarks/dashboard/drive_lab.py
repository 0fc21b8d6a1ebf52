# SPDX-License-Identifier: Apache-2.0
"""Drives the panels of a lab: drive_lab.py URL DIRECTORY <answers >lines

As drive.py, but behind the panels is a real cloud: what is shown has
happened to guests.  The password of the user admin is in LAB_PASSWORD.
"""

import os
import sys

from playwright import sync_api

from benchmarks.dashboard import browser as browsers

_MIGRATIONS = '/admin/dedup_migrations/'
_DRAINS = '/admin/dedup_drains/'
_HOSTS = '/admin/dedup_hosts/'
_INSTANCE = ('/admin/instances/%s/detail'
             '?tab=instance_details__dedup_live_migration')


def hosts(browser):
    browser.log_in('admin', password=os.environ['LAB_PASSWORD'])
    browser.open(_HOSTS)
    with browser.check('hosts: both, with their agents'):
        browser.wait('compute1')
        browser.wait('compute2')
        browser.shoot('lab-hosts')


def drain(browser):
    """From the host to the banner; the guests really move."""
    page = browser.page
    count = browser.world('count')
    with browser.check('drain: check of compute1'):
        page.locator('tr', has_text='compute1').get_by_text('Drain').click()
        browser.press('#dedup-check')
        page.wait_for_selector('#dedup-start')
        browser.wait('%s instances can leave compute1' % count,
                     '#dedup-verdict')
        browser.shoot('lab-drain-check')
    with browser.check('drain: runs'):
        browser.world('slow')
        browser.press('#dedup-start')
        browser.wait('Do not power off compute1', '#dedup-banner')
        page.wait_for_selector('#dedup-servers .dedup-bar')
        browser.shoot('lab-drain-running')
        browser.world('fast')
    with browser.check('drain: safe to power off'):
        _wait_long(page, '#dedup-banner', 'is safe to power off')
        browser.wait('%s of %s' % (count, count), '#dedup-moved')
        browser.shoot('lab-drain-done')
    with browser.check('drain: Nova has all guests on compute2'):
        assert browser.world('hosts') == 'compute2', browser.world('hosts')
        assert browser.world('service compute1') == 'disabled'
    with browser.check('drain: memory of the guests is as it was'):
        assert browser.world('verify') == 'right', browser.world('verify')
    with browser.check('history: a report of each'):
        browser.open(_MIGRATIONS + '?state=completed')
        _wait_long(page, '#dedup-history', 'completed')
        page.locator('#dedup-history a').first.click()
        page.wait_for_selector('#dedup-plan')
        browser.wait('Chosen: ', '#dedup-plan')
        browser.shoot('lab-live-migration')


def abort(browser):
    """A drain that is cancelled while guests are on their way."""
    page = browser.page
    browser.world('enable compute1')
    browser.world('slow')
    with browser.check('abort: a drain of compute2 over a slow link'):
        browser.open(_DRAINS + 'new?host=compute2')
        browser.press('#dedup-check')
        page.wait_for_selector('#dedup-start')
        browser.press('#dedup-start')
        page.wait_for_selector('#dedup-servers .dedup-bar')
        browser.world('under-way')
    with browser.check('abort: cancelled, with an abort'):
        browser.press('#dedup-cancel')
        page.wait_for_selector('#dedup-cancel-abort')
        browser.press('#dedup-cancel-abort')
        _wait_long(page, 'h2', 'compute2 cancelled')
        browser.wait('Do not power off compute2', '#dedup-banner')
        browser.shoot('lab-drain-cancelled')
    with browser.check('abort: Nova has all guests on compute2 again'):
        assert browser.world('hosts') == 'compute2', browser.world('hosts')
        assert browser.world('service compute2') == 'enabled'
    with browser.check('abort: memory of the guests is as it was'):
        assert browser.world('verify') == 'right', browser.world('verify')
    browser.world('fast')


def instance(browser):
    page = browser.page
    with browser.check('instance: estimate'):
        browser.open(_INSTANCE % browser.world('id'))
        browser.press('#dedup-estimate')
        browser.wait('can migrate live', '#dedup-verdict')
        browser.shoot('lab-instance')
    with browser.check('instance: migrate live'):
        browser.press('#dedup-migrate')
        _wait_long(page, '#dedup-history', 'completed')
        assert browser.world('hosts') == 'compute1 compute2', browser.world(
            'hosts')
    with browser.check('instance: memory is as it was'):
        assert browser.world('verify') == 'right', browser.world('verify')


def _wait_long(page, selector, text):
    """Wait for what takes migrations."""
    sync_api.expect(page.locator(selector).first).to_contain_text(
        text, timeout=600_000)


PARTS = (hosts, drain, abort, instance)


def main():
    url, directory = sys.argv[1:]
    with sync_api.sync_playwright() as playwright:
        browser = browsers.Browser(playwright, url, directory)
        for part in PARTS:
            with browser.check(part.__name__ + ': to its end'):
                part(browser)
        with browser.check('no page failed'):
            assert not browser.failures, browser.failures
        browser.close()
    return browser.failed


if __name__ == '__main__':
    sys.exit(main())
