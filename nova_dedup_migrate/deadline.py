# SPDX-License-Identifier: Apache-2.0
"""Doing what may hang.

System calls on a file system whose server is away do not return and
cannot be aborted, and a message bus that is away is waited for without
end.  Such work is done in a thread of its own, which is left behind when
it is late; there is a limit to how many are.
"""

import concurrent.futures
import threading


class Late(Exception):
    """Something was not done in time; it may still go on."""


class Runner:
    """Runs functions with a deadline.

    :param what: that they wait for, as messages name it
    :param limit: threads that may hang at a time
    """

    def __init__(self, what, limit):
        self._what = what
        self._limit = limit
        self._slots = threading.BoundedSemaphore(limit)

    def run(self, seconds, function, *args, **kwargs):
        """Return what function returns if it takes no more than seconds.

        :raises Late: it takes more, or too much hangs already
        """
        seconds = max(0.0, seconds)
        if not self._slots.acquire(blocking=False):
            raise Late('%d requests to %s hang already'
                       % (self._limit, self._what))
        future = concurrent.futures.Future()

        def work():
            try:
                result = function(*args, **kwargs)
            except Exception as error:
                self._slots.release()
                future.set_exception(error)
            else:
                self._slots.release()
                future.set_result(result)

        # An executor would wait for the thread when the process ends.
        threading.Thread(target=work, name='dedup-deadline',
                         daemon=True).start()
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            if future.done():
                # function's own
                raise
            raise Late('%s did not answer within %.3g s'
                       % (self._what, seconds)) from None
