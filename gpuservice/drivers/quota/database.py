# SPDX-License-Identifier: Apache-2.0
"""Limits from the service's own database, with the defaults of ``[quota]``."""

from __future__ import annotations

from oslo_config import cfg

from gpuservice.domain.ports_store import UnitOfWork
from gpuservice.domain.quota import UNLIMITED


class DatabaseQuota:
    """Implements ``domain.ports.QuotaDriver``; the ledger's rows have the defaults filled in."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def limit(self, uow: UnitOfWork, project_id: str, name: str) -> int:
        """One limit in stored units, -1 unlimited."""
        return self.limits(uow, project_id).get(name, UNLIMITED)

    def limits(self, uow: UnitOfWork, project_id: str) -> dict[str, int]:
        """All limits, defaults filled in."""
        return {state.name: state.limit for state in uow.quotas.states(project_id)}
