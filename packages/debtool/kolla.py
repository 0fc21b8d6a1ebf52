# SPDX-License-Identifier: Apache-2.0
"""The steps that Kolla's overrides add to images, without Kolla.

Kolla needs a container engine to build an image.  What our overrides add is
shell commands; they run here in a clean system, as in a Dockerfile.
"""

import re

import jinja2

from debtool import host
from debtool import source

OVERRIDES = source.TOP / 'packages/kolla/template-overrides.j2'


def steps(block, repository):
    """Return the shell commands that a block adds, on Debian and Ubuntu.

    :param block: of Kolla's template, such as nova_libvirt_footer
    :param repository: address of the directory that make repo has made
    :raises CheckFailed: the overrides do not have it
    """
    text, found = re.subn(
        r"(set dedup_migrate_repository =\s*)'[^']*'",
        lambda match: "%s'%s'" % (match[1], repository),
        OVERRIDES.read_text())
    host.check(found == 1, '%s does not set the repository' % OVERRIDES.name)
    environment = jinja2.Environment(
        loader=jinja2.DictLoader({
            'overrides': text,
            'parent': '{%% block %s %%}{%% endblock %%}' % block}))
    made = environment.get_template('overrides').render(
        parent_template='parent', base_package_type='deb')
    lines = [line for line in re.sub(r'\s*\\\n\s*', ' ', made).splitlines()
             if line.strip()]
    host.check(lines and all(line.startswith('RUN ') for line in lines),
               '%s adds something else than commands to %s, or nothing'
               % (OVERRIDES.name, block))
    return [line.removeprefix('RUN ') for line in lines]


def libvirt_image(system):
    """Run what is added to the image of libvirt; return QEMU's version.

    :param system: with packages in /repo
    """
    for command in steps('nova_libvirt_footer', 'file:/repo'):
        system.run("Kolla's step", command, network=True)
    return system.read('reading the version',
                       'qemu-system-x86_64 --version').splitlines()[0]
