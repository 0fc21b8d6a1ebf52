# SPDX-License-Identifier: Apache-2.0
"""What is written down about a lab, so that another program finds it.

/run/nova-dedup-lab/LAB/lab.json::

    {"directory": "/var/tmp/demo", "ephemeral": false,
     "owner": [PID, START],
     "networks": {"lan": "198.18.7.0/24"},
     "hosts": {"one": {"number": 0, "networks": ["lan"],
                       "anchor": [PID, START]}}}

/run/nova-dedup-lab/LAB/HOST.NAME.pid: "PID START" of a process.
/run/nova-dedup-lab/directories.json: directories that were made on the
machine only to have something to mount over, and which labs do so::

    {"/run/libvirt": ["demo"]}

Like the namespaces, none of it survives a reboot of a machine whose /run
is a tmpfs.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil

from lab.hosts import process

ROOT = pathlib.Path('/run/nova-dedup-lab')


@contextlib.contextmanager
def lock():
    """Keep other programs from removing the same lab at once."""
    ROOT.mkdir(parents=True, exist_ok=True)
    with (ROOT / 'lock').open('w') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def labs():
    """Names of all labs on this machine."""
    if not ROOT.is_dir():
        return []
    return sorted(path.parent.name for path in ROOT.glob('*/lab.json'))


def load(lab):
    """Return a lab's record, None if there is none."""
    try:
        return json.loads((ROOT / lab / 'lab.json').read_text())
    except FileNotFoundError:
        return None


def save(lab, record):
    _replace(ROOT / lab / 'lab.json', json.dumps(record, indent=1))


def save_process(lab, host, name, one):
    _replace(ROOT / lab / ('%s.%s.pid' % (host, name)),
             '%d %d\n' % (one.pid, one.start))


def load_process(lab, host, name):
    """Return a process.Process, None if none was started."""
    path = ROOT / lab / ('%s.%s.pid' % (host, name))
    try:
        return process.Process(*map(int, path.read_text().split()))
    except FileNotFoundError:
        return None


def claim_directory(lab, directory):
    """Make a directory of the machine, as it is needed to mount over.

    It stays while a lab has claimed it: to remove it would end what is
    mounted there in the namespaces of all labs.
    """
    with lock():
        claims = _claims()
        for each in (*reversed(directory.parents), directory):
            if not each.exists():
                claims[str(each)] = [lab]
                _save_claims(claims)
                each.mkdir()
            elif lab not in claims.get(str(each), [lab]):
                claims[str(each)].append(lab)
        _save_claims(claims)


def release_directories(lab):
    """Remove what this lab was the last one to claim.

    The caller holds the lock.
    """
    claims = _claims()
    for directory in sorted(claims, reverse=True):
        if lab in claims[directory]:
            claims[directory].remove(lab)
        if not claims[directory]:
            del claims[directory]
            try:
                os.rmdir(directory)
            except OSError:
                # it is used by others than labs, by now
                continue
    _save_claims(claims)


def _claims():
    try:
        return json.loads((ROOT / 'directories.json').read_text())
    except FileNotFoundError:
        return {}


def _save_claims(claims):
    _replace(ROOT / 'directories.json', json.dumps(claims, indent=1))


def process_names(lab, host):
    """Names of the processes that were started on a host."""
    return sorted(path.name.removeprefix(host + '.').removesuffix('.pid')
                  for path in (ROOT / lab).glob(host + '.*.pid'))


def remove(lab):
    shutil.rmtree(ROOT / lab, ignore_errors=True)


def _replace(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix('.new')
    new.write_text(text)
    os.replace(new, path)
