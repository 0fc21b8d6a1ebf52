# SPDX-License-Identifier: Apache-2.0
"""Destroys a lab when the program that made it ends.

Run by Lab with the read end of a pipe as standard input; that program
holds the only write end.
"""

import sys

from lab.hosts import lab


def main(name):
    while sys.stdin.buffer.read(1):
        pass
    orphan = lab.Lab.load(name)
    if orphan is not None:
        orphan.destroy()


if __name__ == '__main__':
    main(sys.argv[1])
