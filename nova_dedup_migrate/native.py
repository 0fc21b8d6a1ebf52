# SPDX-License-Identifier: Apache-2.0
"""Threads of the operating system, also where eventlet replaced them.

nova-compute of 2026.1 and before runs on eventlet: what Python takes for
threads takes turns in one, and whoever waits in a library written in C
holds up all of them.  What calls one is done in a thread of its own here,
as Nova does with its own calls of libvirt.

libvirt calls back in a native thread of Nova's.  What such a callback
shares with others has to be guarded by a native lock: one of eventlet's
is for the threads that take turns, and loses whoever waits for it from
another.

Where eventlet is not in use none of this makes a difference, and nothing
of it is imported.
"""

import os
import select
import sys
import threading as current


def is_patched():
    """Whether eventlet has replaced threads."""
    patcher = sys.modules.get('eventlet.patcher')
    return patcher is not None and patcher.is_monkey_patched('thread')


def threading():
    """Return the module threading with native threads and locks."""
    if is_patched():
        return sys.modules['eventlet.patcher'].original('threading')
    return current


def call(function, *args):
    """Return what function(*args) returns, while others go on.

    :param function: knows nothing of eventlet: it uses neither locks nor
        sockets that eventlet has replaced, nor what raw() is for
    """
    if not is_patched():
        return function(*args)
    outcome: list = []
    done, at_end = os.pipe()

    def work():
        try:
            outcome.append((function(*args), None))
        except BaseException as error:
            outcome.append((None, error))
        finally:
            os.close(at_end)

    try:
        try:
            threading().Thread(target=work, name='dedup-native',
                               daemon=True).start()
        except BaseException:
            os.close(at_end)
            raise
        # eventlet's; the others have their turn.
        select.select([done], [], [])
    finally:
        os.close(done)
    (result, error), = outcome
    if error is not None:
        raise error
    return result


def raw(thing):
    """Return what is behind the proxy that Nova puts before libvirt's.

    The proxy does each call in a native thread, but can itself be used
    only by the threads that take turns.
    """
    if is_patched():
        # it would not be one otherwise
        pool = sys.modules.get('eventlet.tpool')
        if pool is not None and isinstance(thing, pool.Proxy):
            return thing._obj
    return thing
