# SPDX-License-Identifier: Apache-2.0
"""The ledger of quota as use cases see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuservice.domain.work import QuotaState


class QuotaRepository(Protocol):
    """The ledger of limits and use. Amounts in the unit of the name (GPUs in milli)."""

    def limits(self, project_id: str) -> dict[str, int]:
        """The project's own limits (without defaults)."""

    def set_limits(self, project_id: str, limits: Mapping[str, int | None]) -> None:
        """Write limits; None goes back to the default."""

    def drop_limits(self, project_id: str) -> None:
        """Back to the defaults for everything."""

    def usage(self, project_id: str) -> dict[str, int]:
        """What is in use."""

    def projects(self) -> list[str]:
        """Every project with a limit or use, sorted."""

    def take(self, project_id: str, amounts: Mapping[str, int]) -> None:
        """Take all amounts, names in sorted order, each guarded by its limit in one conditional
        update. Raises ``QuotaExceeded`` (limit, value, used, asked) at the first that fails."""

    def move(self, project_id: str, amounts: Mapping[str, int]) -> None:
        """Take what is positive and return what is negative, together; raises ``QuotaExceeded`` at
        the first that does not fit, and the caller rolls back."""

    def give_back(self, project_id: str, amounts: Mapping[str, int]) -> None:
        """Return amounts (relative update)."""

    def recount(self) -> list[tuple[str, str, int, int]]:
        """(project, name, ledger, counted from rows) where they differ; empty when exact."""

    def repair(self) -> int:
        """Set the ledger to the recount; how many rows changed."""

    def effective_limits(self, project_id: str) -> dict[str, int]:
        """The project's limits, defaults filled in, in one query."""

    def states(self, project_id: str) -> list[QuotaState]:
        """Limits (defaults filled in) with use, by name."""

    def states_of(self, project_ids: Sequence[str]) -> dict[str, list[QuotaState]]:
        """The same of many projects, in two queries per 500 of them."""
