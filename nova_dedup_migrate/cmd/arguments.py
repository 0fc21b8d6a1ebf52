# SPDX-License-Identifier: Apache-2.0
"""Types of arguments of the commands."""

import argparse
import uuid as uuids


def uuid(text: str) -> str:
    """Return a UUID as OpenStack writes it.

    :raises ArgumentTypeError:
    """
    try:
        return str(uuids.UUID(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError('%s is no UUID' % text) from error
