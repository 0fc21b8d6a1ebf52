# SPDX-License-Identifier: Apache-2.0
"""A cache of things that are built once: one directory for each key.

An entry is built in a temporary directory beside its place and renamed, so
it is either whole or not there; a lock keeps two builders apart.  When one
is added, those of its kind that nobody has asked for in weeks go.
"""

from collections.abc import Callable
from collections.abc import Iterable
import fcntl
import hashlib
import os
from pathlib import Path
import shutil
import tempfile
import time

from guests.errors import run

_UNUSED_S = 14 * 86400.0


def root() -> Path:
    """Where everything this project caches lives."""
    given = os.environ.get('NOVA_DEDUP_MIGRATE_CACHE')
    return Path(given) if given else Path.home() / '.cache/nova-dedup-migrate'


def key(*parts: str | bytes | Iterable[Path]) -> str:
    """A short name for these inputs: strings, bytes, contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(b's' + part.encode() + b'\0')
        elif isinstance(part, bytes):
            digest.update(b'b%d\0' % len(part) + part)
        else:
            for path in sorted(part):
                data = path.read_bytes()
                digest.update(b'f%s %d\0' % (path.name.encode(), len(data)))
                digest.update(data)
    return digest.hexdigest()[:16]


def entry(kind: str, name: str, build: Callable[[Path], None]) -> Path:
    """The directory of entry `name`; `build` fills a new one."""
    parent = root() / kind
    place = parent / name
    if place.is_dir():
        os.utime(place)
        return place
    parent.mkdir(parents=True, exist_ok=True)
    with open(parent / f'.{name}.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place.is_dir():
            return place
        work = Path(tempfile.mkdtemp(prefix=f'.{name}.', dir=parent))
        try:
            build(work)
            work.chmod(0o755)
            work.rename(place)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    _forget(parent)
    return place


def _forget(parent: Path) -> None:
    """Remove what was last asked for long ago, or left by a builder that
    was killed then."""
    for path in parent.iterdir():
        try:
            if (path.is_symlink() or not path.is_dir()
                    or time.time() - path.stat().st_mtime < _UNUSED_S):
                continue
            gone = path
            if not path.name.startswith('.'):
                # nobody may find a part of it
                gone = path.rename(parent / f'.{path.name}.gone')
            shutil.rmtree(gone)
        except OSError:
            # another program does the same, or it is not ours to remove
            continue


def copy(source: Path, target: Path) -> Path:
    """Copy with holes kept, and blocks shared where that is possible."""
    run(['cp', '--reflink=auto', '--sparse=always', source, target])
    return target
