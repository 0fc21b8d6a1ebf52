# SPDX-License-Identifier: Apache-2.0
"""A source tree = the pristine source + our files + the hook patches.

The tree is brought to that state file by file, and a file that is
already right keeps its time stamp: ninja then rebuilds only what
changed. The patches are applied to copies first, so that one that does
not apply leaves the tree as it was.
"""

import hashlib
import json
import os
from pathlib import Path
import re
import shutil
import subprocess

from buildtool import common
from buildtool.common import BuildError

#: What a source folder may hold at its top beside the source.
NOT_SOURCE = ('build', '.git', '.pc')


def overlay(*tops):
    """Return our files as {path in the QEMU tree: path here}.

    :param tops: folders; a file of one takes the place of those before
    """
    found = {}
    for top in tops:
        for path, folders, files in os.walk(top):
            folders.sort()
            for name in sorted(files):
                # What editors and patch leave behind.
                if name.startswith('.') or name.endswith(
                        ('~', '.orig', '.rej', '.swp')):
                    continue
                full = Path(path, name)
                found[str(full.relative_to(top))] = full
    return found


def series(folder):
    """Return the patches in their order; no series file means none."""
    listed = folder / 'series'
    if not listed.is_file():
        return []
    patches = []
    for line in listed.read_text().splitlines():
        name = line.partition('#')[0].strip()
        if not name:
            continue
        if not (folder / name).is_file():
            raise BuildError(
                f'the patch {name} is listed in {listed} but missing')
        patches.append(folder / name)
    return patches


def touched(patch):
    """Return the paths that a patch changes (for patch -p1)."""
    paths = set()
    for line in patch.read_text(errors='replace').splitlines():
        match = re.match(r'(?:---|\+\+\+) [^/\s]+/(\S+)', line)
        if match:
            paths.add(match[1])
    for path in paths:
        if '..' in Path(path).parts:
            raise BuildError(
                f'the patch {patch.name} leaves the tree: {path}')
    return sorted(paths)


def digest(tops, patches):
    """Hash our part of the inputs."""
    total = hashlib.sha256()
    for name, path in overlay(*tops).items():
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f'src {name} {content}\n'.encode())
    for path in series(patches):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f'patch {path.name} {content}\n'.encode())
    return total.hexdigest()


def prepare(source, place, extra=()):
    """Copy the pristine source to a new tree, once.

    :param extra: (path, text) of files that configure needs besides
    """
    if (place / 'source').exists():
        return
    common.say('copying the source')
    with common.scratch(place, '.copy-') as new:
        shutil.copytree(source.tree, new / 'source', symlinks=True,
                        ignore=_not_source(source.tree))
        for name, text in extra:
            (new / 'source' / name).write_text(text)
        (new / 'source').rename(place / 'source')


def _not_source(top):
    def ignore(folder, names):
        return NOT_SOURCE if Path(folder) == top else ()
    return ignore


def synchronise(source, place, tops, patches):
    """Bring a prepared tree to the state described above.

    :param tops: the folders of our files, see overlay()
    :returns: the paths that were written or removed
    """
    with common.scratch(place, '.stage-') as stage:
        _apply(source, series(patches), stage)
        wanted = {
            str(path.relative_to(stage)): path
            for path in sorted(stage.rglob('*')) if path.is_file()}
        for name, path in overlay(*tops).items():
            if (source.tree / name).exists() or name in wanted:
                raise BuildError(
                    f'qemu/src/{name} would replace a file of QEMU '
                    f'{source.version}')
            wanted[name] = path
        return _bring_all(source, place, wanted)


def restore(source, place):
    """Bring a prepared tree back to the pristine source.

    :returns: the paths that were written or removed
    """
    return _bring_all(source, place, {})


def _bring_all(source, place, wanted):
    """Write what is wanted; put back what was written before and is not.

    :param wanted: {path in the tree: file with the content}
    """
    note = place / 'ours.json'
    before = json.loads(note.read_text()) if note.is_file() else []
    # Noted first: after a kill the next run knows what to look at.
    _replace(note, json.dumps(
        sorted({*before, *wanted}), indent=0).encode())
    changed = []
    for name in sorted({*before, *wanted}):
        new = wanted.get(name, source.tree / name)
        if _bring(new, place / 'source' / name):
            changed.append(name)
    _replace(note, json.dumps(sorted(wanted), indent=0).encode())
    return changed


def _apply(source, patches, stage):
    for name in {name for patch in patches for name in touched(patch)}:
        if (source.tree / name).exists():
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source.tree / name, stage / name)
    for patch in patches:
        # Offsets are fine; a hook whose surroundings changed is not.
        done = subprocess.run(
            ['patch', '-p1', '--fuzz=0', '--batch', '--forward',
             '--no-backup-if-mismatch', '--reject-file=-',
             '-i', str(patch.resolve())],
            cwd=stage, capture_output=True, text=True,
            env={**os.environ, 'LC_ALL': 'C'})
        if done.returncode:
            raise BuildError(patch_failure(
                patch.name, source.version, done.stdout + done.stderr))


def patch_failure(name, version, output):
    """Say which file of which patch did not apply."""
    current, where = None, []
    for line in output.splitlines():
        match = re.match(r"patching file '?([^' ]+)|\|\+\+\+ \w+/(\S+)", line)
        if match:
            current = match[1] or match[2]
        elif 'FAILED' in line or "can't find file" in line or (
                'previously applied' in line) or 'malformed' in line:
            where.append(f'{current or "?"}: {line.strip()}')
    # patch names a missing file only after complaining about it.
    where = [item.replace('?:', f'{current}:', 1)
             if item.startswith('?:') and current else item
             for item in where]
    reason = where[0] if where else output.strip().splitlines()[-1:]
    return f'the patch {name} does not apply to QEMU {version}: {reason}'


def _bring(new, old):
    """Make ``old`` what ``new`` is; say whether it had to change."""
    if not new.exists():
        if not old.exists():
            return False
        old.unlink()
        return True
    content, mode = new.read_bytes(), new.stat().st_mode & 0o755
    if old.is_file() and old.read_bytes() == content:
        return False
    old.parent.mkdir(parents=True, exist_ok=True)
    _replace(old, content, mode)
    return True


def _replace(path, content, mode=0o644):
    new = path.with_name(f'.{path.name}.new')
    new.write_bytes(content)
    new.chmod(mode)
    new.rename(path)
