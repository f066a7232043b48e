# SPDX-License-Identifier: Apache-2.0
"""First schema"""

from __future__ import annotations

from alembic import op

from gpuservice.db.migrations.first_schema import (
    accounts,
    coordination,
    execution,
    inventory,
    jobs,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

PARTS = (inventory, jobs, execution, accounts, coordination)


def upgrade() -> None:
    """Apply."""
    for part in PARTS:
        part.create()


def downgrade() -> None:
    """Take back."""
    for part in reversed(PARTS):
        for table in reversed(part.TABLES):
            op.drop_table(table)
