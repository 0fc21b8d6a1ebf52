/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches the part of a page again, as long as it changes and is seen.
 *
 *   <div data-dedup-part="URL" data-dedup-seconds="5">...</div>
 *   <div id="dedup-status" role="status" aria-live="polite"></div>
 *
 * The status is spoken when it changes, the part is not.
 */
(function () {
  'use strict';

  function start() {
    var part = document.querySelector('[data-dedup-part]');
    var status = document.getElementById('dedup-status');
    if (!part || part.dataset.dedupFinal === 'true') {
      return;
    }
    var seconds = Number(part.dataset.dedupSeconds) || 5;
    var failures = 0;

    function later() {
      window.setTimeout(look, 1000 * seconds * Math.min(1 + failures, 6));
    }

    function show(found) {
      var active = document.activeElement;
      /* Whoever fills in a form of the part is not disturbed. */
      if (!(active && part.contains(active) &&
            /^(INPUT|SELECT|TEXTAREA)$/.test(active.tagName))) {
        var id = active && part.contains(active) ? active.id : '';
        part.innerHTML = found.html;
        if (id && document.getElementById(id)) {
          document.getElementById(id).focus();
        }
      }
      if (status && status.textContent !== found.status) {
        status.textContent = found.status;
      }
      failures = 0;
      if (!found.final) {
        later();
      }
    }

    function look() {
      if (document.hidden) {
        document.addEventListener('visibilitychange', look, { once: true });
        return;
      }
      fetch(part.dataset.dedupPart, {
        credentials: 'same-origin',
        headers: { 'X-Requested-With': 'XMLHttpRequest' }
      }).then(function (response) {
        if (!response.ok || response.redirected) {
          throw new Error(response.status);
        }
        return response.json();
      }).then(show).catch(function () {
        failures += 1;
        later();
      });
    }

    later();
  }

  if (document.readyState === 'loading') {
    document.addEventListener('DOMContentLoaded', start);
  } else {
    start();
  }
}());
