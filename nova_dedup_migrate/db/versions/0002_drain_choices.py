# SPDX-License-Identifier: Apache-2.0
"""Choices for single servers when a drain is created."""

from alembic import op
import sqlalchemy as sa

revision = '0002'
down_revision = '0001'


def upgrade():
    op.add_column('drains', sa.Column('choices', sa.JSON(), nullable=True))
