# SPDX-License-Identifier: Apache-2.0
"""When a node's word on its devices changed last, and when a process of the service ended"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import UtcDateTime

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("nodes", sa.Column("device_faults_at", UtcDateTime(), nullable=True))
    op.add_column("services", sa.Column("ended_at", UtcDateTime(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("services", "ended_at")
    op.drop_column("nodes", "device_faults_at")
