# SPDX-License-Identifier: Apache-2.0
"""Who said that a device is not healthy, and what a node's agent says of its devices"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuservice.db.types import Json, exact_string

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("devices", sa.Column("health_source", exact_string(32), nullable=True))
    op.add_column("nodes", sa.Column("device_faults", Json(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("nodes", "device_faults")
    op.drop_column("devices", "health_source")
