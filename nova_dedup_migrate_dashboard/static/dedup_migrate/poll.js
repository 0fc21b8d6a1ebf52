/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches the part of a page again while it may change and is seen.
 *
 *   <div id="dedup-status" role="status" aria-live="polite"></div>
 *   <div id="dedup-stale" role="alert" hidden>...</div>
 *   <div id="dedup-part" data-url="URL" data-seconds="5">...</div>
 *
 * The status is spoken when it changes, the part is not.
 */
(function () {
  'use strict';

  var MOST = 6;

  /* Each answer has other CSRF tokens. */
  function withoutTokens(html) {
    return html.replace(/(csrfmiddlewaretoken" value=")[^"]*/g, '$1');
  }

  function start() {
    var part = document.getElementById('dedup-part');
    var status = document.getElementById('dedup-status');
    var stale = document.getElementById('dedup-stale');
    var failures = 0;
    var shown = '';

    if (!part || 'final' in part.dataset) {
      return;
    }

    function later() {
      window.setTimeout(look, 1000 * Number(part.dataset.seconds) *
                        Math.min(1 + failures, MOST));
    }

    function replace(html) {
      var active = document.activeElement;
      var id = active && part.contains(active) ? active.id : '';
      var next;
      part.innerHTML = html;
      next = id && document.getElementById(id);
      if (next) {
        next.focus();
      }
    }

    function show(found) {
      var bare = withoutTokens(found.html);
      failures = 0;
      stale.hidden = true;
      if (bare !== shown) {
        shown = bare;
        replace(found.html);
      }
      if (status.textContent !== found.status) {
        status.textContent = found.status;
      }
      if (!found.final) {
        later();
      }
    }

    function failed() {
      failures += 1;
      stale.hidden = failures < 2;
      later();
    }

    function look() {
      if (document.hidden) {
        document.addEventListener('visibilitychange', look, { once: true });
        return;
      }
      fetch(part.dataset.url, {
        credentials: 'same-origin',
        headers: { 'X-Requested-With': 'XMLHttpRequest' }
      }).then(function (response) {
        if (response.status === 401) {
          /* The session is over; Horizon sends the page to its log-in. */
          window.location.reload();
          return;
        }
        if (!response.ok) {
          throw new Error(String(response.status));
        }
        return response.json().then(show);
      }).catch(failed);
    }

    later();
  }

  if (document.readyState === 'loading') {
    document.addEventListener('DOMContentLoaded', start);
  } else {
    start();
  }
}());
