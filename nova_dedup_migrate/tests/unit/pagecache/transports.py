# SPDX-License-Identifier: Apache-2.0
"""What every transport has to do, whatever the guest does.

A test class derives from TransportSuite and from a TestCase with:

asked(manners)
    Return a transport.Transport to a guest whose lister has the manners:
    a callable(request) -> list of what it does in turn, bytes to say, or
    HANG.  After the last one it ends.  request is a listingformat.Request,
    of nonce 0 where the transport needs none.
"""

import time

from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import transport
from nova_dedup_migrate.tests.unit.pagecache import listings

HANG = object()
LIMITS = transport.Limits(60.0, 8192, 1000)


def right(request, **given):
    return listings.small(nonce=request.nonce, **given)


def many(request, count=1000, each=1):
    """A listing with count extents, in frames of some."""
    given = [(number * 8192, 1, number % 4096 * 4096, 0)
             for number in range(count)]
    return listings.listing(
        (form.BEGIN, listings.begin(request.nonce)),
        (form.DISK, listings.disk(0, listings.VDA)),
        *((form.EXTENTS, listings.extents(*given[at:at + each]))
          for at in range(0, count, each)),
        (form.END, listings.end(extents=count)))


class TransportSuite:

    def ask(self, manners, seconds=60, limits=LIMITS):
        return self.asked(manners).request(limits,
                                       time.monotonic() + seconds)

    def test_answer(self):
        def manners(request):
            self.request = request
            return [right(request, skips=('nfs',))]
        made = self.ask(manners)
        self.assertTrue(made.complete)
        self.assertEqual((1, [listings.VDA]), (made.extents, made.disks))
        self.assertEqual((8192, 1000),
                         (self.request.memory_kib, self.request.extents))
        self.assertTrue(30000 < self.request.time_ms < 60000)

    def test_piece_by_piece(self):
        def manners(request):
            data = many(request)
            return [data[at:at + 777] for at in range(0, len(data), 777)]
        made = self.ask(manners)
        self.assertTrue(made.complete)
        self.assertEqual(1000, made.extents)

    def test_large(self):
        """More than one reply of an agent can hold."""
        limits = transport.Limits(60.0, 8192, 1 << 18)
        made = self.ask(lambda request: [many(request, 1 << 18, 4096)],
                        limits=limits)
        self.assertTrue(made.complete)
        self.assertEqual(1 << 18, made.extents)

    def test_no_answer(self):
        self.assertRaises(errors.NoAnswer, self.ask,
                          lambda request: [HANG], 0.3)

    def test_stops_in_the_middle(self):
        made = self.ask(lambda request: [many(request)[:20000], HANG], 1.0)
        self.assertFalse(made.complete)
        self.assertGreater(made.extents, 0)

    def test_breaks_off_in_the_middle(self):
        made = self.ask(lambda request: [many(request)[:20000]])
        self.assertFalse(made.complete)
        self.assertGreater(made.extents, 0)

    def test_breaks_off_at_once(self):
        error = self.assertRaises(
            (errors.NoAnswer, errors.GuestUnreachable), self.ask,
            lambda request: [])
        self.assertTrue(str(error))

    def test_malformed(self):
        for data in (listings.frame(form.SKIPPED, 7, b'x'),
                     listings.frame(form.EXTENTS, 1, b'', length=65537),
                     listings.frame(form.BEGIN, 0, listings.begin())):
            self.assertRaises(
                errors.ListingError, self.ask, lambda request, data=data: [
                    listings.frame(form.BEGIN, 0, listings.begin(
                        request.nonce)) + data, HANG])

    def test_more_than_was_asked_for(self):
        self.assertRaises(errors.ListingError, self.ask,
                          lambda request: [many(request, 1001)])

    def test_floods_in_form(self):
        """Well-formed, and without end."""
        def manners(request):
            yield listings.frame(form.BEGIN, 0,
                                 listings.begin(request.nonce))
            for number in range(1, 1 << 30):
                yield listings.frame(form.SKIPPED, number,
                                     listings.skipped('x'))
        self.assertRaises(errors.ListingError, self.ask, manners)
