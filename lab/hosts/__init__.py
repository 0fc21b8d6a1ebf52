# SPDX-License-Identifier: Apache-2.0
"""Hosts on one machine, made of namespaces.

A host has a network, a hostname and some directories of its own; the kernel,
the packages and all other files are the machine's.  Several labs, each
with its hosts, exist at once; everything one of them is made of is named
after it::

    from lab.hosts import lab

    with lab.Lab('demo', '/var/tmp/demo') as demo:
        one, two = demo.add_host('one'), demo.add_host('two')
        one.private('/etc/libvirt')          # empty, one's own
        one.run(['getent', 'hosts', 'two'])
        server = two.start('server', ['some-daemon'])
        two.link().limit(send=12_500_000)    # bytes per second
        server.end()

A lab stays until destroy(), also beyond the program, which finds it
again with Lab.load('demo').  destroy() ends every process of the hosts,
started by whomever, and leaves nothing but the lab's directory.  A lab made
with ephemeral=True has a directory that goes with it, and is destroyed when
the program that made it ends, however that happens.

Needs root, and the commands ip, mount, nsenter and unshare.
"""
