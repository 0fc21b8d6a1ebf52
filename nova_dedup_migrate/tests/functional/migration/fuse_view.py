# SPDX-License-Identifier: Apache-2.0
"""A file as a destination sees it: read late, or as it was.

A file system with one file, for which this process answers the kernel's
requests (FUSE, include/uapi/linux/fuse.h, protocol 7.31).  What is read can
be held: the bytes are those of the moment the request came, the answer goes
out when the test lets it.
"""

import ctypes
import errno
import mmap
import os
import stat
import struct
import threading

NAME = 'disk'
_ROOT, _FILE = 1, 2
_LOOKUP, _FORGET, _GETATTR, _SETATTR = 1, 2, 3, 4
_OPEN, _READ, _WRITE, _STATFS, _RELEASE = 14, 15, 16, 17, 18
_FSYNC, _FLUSH, _INIT, _OPENDIR, _RELEASEDIR = 20, 25, 26, 27, 29
_INTERRUPT, _BATCH_FORGET = 36, 42
_HEADER = struct.Struct('=IIQQIIII')
_RANGE = struct.Struct('=QQI')
_SILENT = {_FORGET, _INTERRUPT, _BATCH_FORGET}
_MAX_IO = 1 << 20
_FOREVER = 3600
#: As a block device does.
_KEEP_CACHE = 2
#: Requests that wait fail; the mount goes away.
_MNT_FORCE_DETACH = 3


class View:
    """A mounted file that shows another.

    :param backing: the file that is shown
    :param directory: an empty one, to mount on
    :ivar path: what a QEMU opens
    :ivar held: number of reads that wait to be let go
    :ivar reads: number of reads that came
    """

    def __init__(self, backing, directory):
        self._file = os.open(backing, os.O_RDWR)
        self._directory = directory
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._go.set()
        self.path = directory / NAME
        self.held = self.reads = 0
        self._device = os.open('/dev/fuse', os.O_RDWR)
        try:
            _mount(directory, self._device)
        except OSError:
            os.close(self._device)
            os.close(self._file)
            raise
        self._serve()

    def hold(self):
        """Answer no read from now on."""
        self._go.clear()

    def let_go(self):
        self._go.set()

    def close(self):
        self.let_go()
        _libc().umount2(os.fsencode(self._directory),
                        _MNT_FORCE_DETACH)

    def _serve(self):
        threading.Thread(target=self._requests, daemon=True).start()

    def _requests(self):
        try:
            while True:
                request = os.read(self._device, _MAX_IO + 4096)
                self._answer(request)
        except OSError:
            # unmounted
            os.close(self._device)

    def _answer(self, request):
        _, operation, unique, node, *_ = _HEADER.unpack_from(request)
        body = request[_HEADER.size:]
        if operation in _SILENT:
            return
        if operation == _READ:
            _, offset, size = _RANGE.unpack_from(body)
            data = os.pread(self._file, size, offset)
            with self._lock:
                self.reads += 1
                self.held += 1
            # others must not wait for it
            threading.Thread(target=self._late, args=(unique, data),
                             daemon=True).start()
            return
        try:
            self._reply(unique, self._handle(operation, node, body))
        except OSError as error:
            self._reply(unique, b'', error.errno)

    def _late(self, unique, data):
        self._go.wait()
        with self._lock:
            self.held -= 1
        try:
            self._reply(unique, data)
        except OSError:
            # nobody waits for it any more
            pass

    def _reply(self, unique, data, error=0):
        os.write(self._device, struct.pack(
            '=IiQ', 16 + len(data), -error, unique) + data)

    def _handle(self, operation, node, body):
        if operation == _INIT:
            return struct.pack('=IIIIHHIIHHI28x', 7, 31, 0, 0, 16, 12,
                               _MAX_IO, 1, _MAX_IO >> 12, 0, 0)
        if operation == _LOOKUP:
            if body.rstrip(b'\0').decode() != NAME:
                raise OSError(errno.ENOENT, 'no such file')
            return struct.pack('=QQQQII', _FILE, 1, _FOREVER, _FOREVER,
                               0, 0) + self._attributes(_FILE)
        if operation in (_GETATTR, _SETATTR):
            return struct.pack('=QII', _FOREVER, 0, 0) + (
                self._attributes(node))
        if operation in (_OPEN, _OPENDIR):
            return struct.pack('=QII', 1, _KEEP_CACHE, 0)
        if operation == _WRITE:
            _, offset, size = _RANGE.unpack_from(body)
            os.pwrite(self._file, body[40:40 + size], offset)
            return struct.pack('=II', size, 0)
        if operation == _STATFS:
            return struct.pack('=QQQQQIIII24x', 1 << 20, 1 << 20, 1 << 20,
                               2, 1, 4096, 255, 4096, 0)
        if operation in (_FSYNC, _FLUSH, _RELEASE, _RELEASEDIR):
            return b''
        raise OSError(errno.ENOSYS, 'not implemented')

    def _attributes(self, node):
        size = os.fstat(self._file).st_size if node == _FILE else 0
        mode = (stat.S_IFREG | 0o644 if node == _FILE
                else stat.S_IFDIR | 0o755)
        return struct.pack('=6Q10I', node, size, -(-size // 512), 0, 0, 0,
                           0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0,
                           4096, 0)


def make(test, backing):
    """Return a View, or skip the test and say why."""
    try:
        view = View(backing, test.temporary_dir())
    except OSError as error:
        return test.skipTest('no FUSE file system can be mounted: %s'
                             % error)
    test.addCleanup(view.close)
    return view


def cached_pages(path, offset, length):
    """Return how many pages of a file are in the host's page cache."""
    page = mmap.PAGESIZE
    with open(path, 'r+b') as file:
        area = mmap.mmap(file.fileno(), length, offset=offset,
                         flags=mmap.MAP_PRIVATE)
    with area:
        found = (ctypes.c_ubyte * (length // page))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(area))
        if _libc().mincore(ctypes.c_void_p(address),
                           ctypes.c_size_t(length), found):
            raise OSError(ctypes.get_errno(), 'mincore')
        del address
        return sum(one & 1 for one in found)


def _libc():
    return ctypes.CDLL(None, use_errno=True)


def _mount(directory, device):
    options = 'fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other' % (
        device, os.getuid(), os.getgid())
    if _libc().mount(b'test', os.fsencode(directory), b'fuse', 0,
                     options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
