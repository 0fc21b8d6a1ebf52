# SPDX-License-Identifier: Apache-2.0
"""The base of every error that this project raises on purpose.

Each subclass has one message template and keeps what it was made of as
attributes, so that a caller decides by field and an operator reads one
sentence.  The template is named first: it names the object, what failed
and, if there is a remedy, what to do.
"""

import typing


class DedupMigrateError(Exception):
    """:ivar fields: the keyword arguments; each is an attribute, too"""

    template = 'nova-dedup-migrate failed'

    def __init__(self, **fields: typing.Any) -> None:
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(self.template.format(**fields))

    if typing.TYPE_CHECKING:
        def __getattr__(self, name: str) -> typing.Any:
            """The fields are attributes."""
