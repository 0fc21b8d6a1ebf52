# SPDX-License-Identifier: Apache-2.0
"""Sends an order to a program in a guest and waits for its reply.

An order is a line of text, a reply a flat JSON object (messages); both may
be lost with the line, so an order is repeated until it is answered.
"""

import json
import time

from guests import errors


def send(line, parser, order, is_reply, timeout, again, number=None):
    """Return the reply of a guest that carries out the order.

    :param line: line.Line
    :param parser: messages.LineParser, which keeps what came of a line
    :param order: text without its end of line
    :param number: sent with it, for a guest that carries out each number
        once
    :param is_reply: called with each message; whether it is the reply
    :param timeout: s
    :param again: s until an order without an answer is repeated
    :raises GuestFailed: there is no reply, or the guest refuses
    """
    text = order if number is None else '%s id=%d' % (order, number)
    deadline = time.monotonic() + timeout
    repeat = 0.0
    while (now := time.monotonic()) < deadline:
        if now >= repeat:
            line.send(text.encode() + b'\n')
            repeat = now + again
        for message in parser.feed(line.receive(
                min(repeat, deadline) - now)):
            if is_reply(message):
                return _checked(order, message)
    raise errors.GuestFailed('the guest does not answer %r within %.0f s'
                             % (order, timeout))


def _checked(order, message):
    if message.get('ok') is not True:
        raise errors.GuestFailed('the guest refuses %r: %s' % (
            order, json.dumps(message.get('message', message))))
    return message
