# SPDX-License-Identifier: Apache-2.0
"""Drives the panels in Chromium: python -m ...drive URL WORLD-FD...

    usage: drive.py URL DIRECTORY <commands >results

Writes a line for each thing it checks, ``ok NAME`` or ``not ok NAME:
REASON``, and screenshots into the directory.  A line ``world COMMAND`` is
for the world, which answers with a line.
"""

import contextlib
import pathlib
import re
import sys

from playwright import sync_api

_MS = 120_000
#: Set by the instance whose name is a script, if it is run
_HACKED = 'hacked'


class Driver:
    """:param page: of Playwright
    :param url: of Horizon
    :param directory: for screenshots
    """

    def __init__(self, page, url, directory):
        self.page = page
        self.url = url
        self.directory = pathlib.Path(directory)
        self.failed = False

    @contextlib.contextmanager
    def check(self, name):
        try:
            yield
        except Exception as error:
            self.failed = True
            print('not ok %s: %s' % (name, ' '.join(
                str(error).split())[:600]), flush=True)
            with contextlib.suppress(sync_api.Error):
                self.shoot('failed-' + re.sub(r'\W+', '-', name))
        else:
            print('ok ' + name, flush=True)

    def shoot(self, name):
        self.page.screenshot(path=self.directory / (name + '.png'),
                             full_page=True)

    def world(self, command):
        print('world ' + command, flush=True)
        sys.stdin.readline()

    def open(self, path):
        self.page.goto(self.url + path)

    def log_in(self):
        self.open('/auth/login/')
        self.page.fill('#id_username', 'dedup')
        self.page.fill('#id_password', 'x')
        self.page.click('#loginBtn')
        self.page.wait_for_url(lambda url: '/auth/login' not in url)

    def text(self, selector='[data-dedup-part]'):
        return self.page.inner_text(selector)

    def wait_text(self, text, selector='[data-dedup-part]'):
        sync_api.expect(self.page.locator(selector)).to_contain_text(
            text, timeout=_MS)


def history(driver):
    driver.open('/admin/dedup_migrations/')
    with driver.check('history of live migrations'):
        driver.wait_text('History')
        assert 'web-0' in driver.text(), driver.text()
        driver.shoot('live-migrations')
    with driver.check('names are text'):
        assert '<script>' in driver.text()
        assert _HACKED not in driver.page.title()
    with driver.check('detail of a live migration'):
        driver.page.click('text=web-0')
        driver.wait_text('Predicted and actual')
        assert driver.page.locator('svg.dedup-chart').count() >= 1
        driver.shoot('live-migration')
    with driver.check('filter'):
        driver.open('/admin/dedup_migrations/?state=failed')
        driver.wait_text('No live migration has ended')


def hosts(driver):
    with driver.check('hosts'):
        driver.open('/admin/dedup_hosts/')
        driver.wait_text('compute3')
        driver.shoot('hosts')


def drain(driver):
    page = driver.page
    with driver.check('wizard'):
        driver.open('/admin/dedup_hosts/')
        page.locator('tr', has_text='compute1').get_by_text('Drain').click()
        assert page.locator('#dedup-drain-host').input_value() == 'compute1'
        driver.shoot('drain-host')
        page.click('#dedup-check')
        page.wait_for_selector('#dedup-start', timeout=_MS)
        assert 'web-1' in driver.text()
        driver.shoot('drain-check')
        page.click('#dedup-start')
        page.wait_for_selector('#dedup-banner', timeout=_MS)
    with driver.check('progress of a drain'):
        driver.wait_text('Do not power off', '#dedup-banner')
        driver.wait_text('migrating')
        driver.shoot('drain-running')
    with driver.check('pause and resume'):
        page.click('#dedup-pause')
        page.wait_for_selector('#dedup-resume', timeout=_MS)
        page.click('#dedup-resume')
        page.wait_for_selector('#dedup-pause', timeout=_MS)
    with driver.check('banner'):
        driver.wait_text('is safe to power off', '#dedup-banner')
        driver.wait_text('5 / 5')
        assert page.locator('#dedup-pause').count() == 0
        driver.shoot('drain-done')
    with driver.check('spoken status'):
        assert 'drained' in page.inner_text('#dedup-status')


def away(driver):
    with driver.check('controller away'):
        driver.world('api off')
        driver.open('/admin/dedup_migrations/')
        driver.wait_text('go on without this page')
        driver.shoot('controller-away')
        driver.world('api on')
        driver.wait_text('History')


def policy(driver):
    """A strict one: no script but from the server itself."""
    with driver.check('no script or style within the pages'):
        for path in ('migrations', 'drains', 'hosts'):
            driver.open('/admin/dedup_%s/' % path)
            driver.page.wait_for_selector('[data-dedup-part]')
            part = driver.page.inner_html('[data-dedup-part]')
            assert not re.search(r'<script|<style|\son\w+=|\sstyle=', part), (
                part)


def keyboard(driver):
    with driver.check('keyboard'):
        driver.open('/admin/dedup_drains/new')
        driver.page.focus('#dedup-drain-host')
        driver.page.keyboard.press('Tab')
        assert driver.page.evaluate('document.activeElement.id') == (
            'dedup-check')


def main():
    url, directory = sys.argv[1:]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path='/usr/bin/chromium', args=[
                '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'])
        page = browser.new_page(viewport={'width': 1280, 'height': 900})
        page.set_default_timeout(_MS)
        driver = Driver(page, url, directory)
        with driver.check('log in'):
            driver.log_in()
        for part in (history, hosts, drain, away, policy, keyboard):
            part(driver)
        browser.close()
    return driver.failed


if __name__ == '__main__':
    sys.exit(main())
