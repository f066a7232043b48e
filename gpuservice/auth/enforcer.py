# SPDX-License-Identifier: Apache-2.0
"""Policy, by oslo.policy with the defaults in code."""

from __future__ import annotations

import time
from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from gpuservice import policies
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Forbidden

#: How long a decision stands before the rules (and a changed policy file) are asked again, in
#: seconds, and how many decisions are remembered. A request asks four rules of 0.15 ms each.
REMEMBER_S = 5.0
MAX_REMEMBERED = 4096


class Enforcer:
    """Decides whether a caller may do something."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = policy.Enforcer(conf)
        self._enforcer.register_defaults(policies.list_rules())
        self._known: dict[tuple[Any, ...], bool] = {}
        self._known_until = 0.0

    def allows(self, rule: str, credentials: dict[str, Any]) -> bool:
        """Whether a rule holds for credentials (``roles``, ``project_id``, ``user_id``)."""
        key = (rule, *credentials["roles"], credentials["project_id"], credentials["user_id"])
        now = time.monotonic()
        if now >= self._known_until or len(self._known) >= MAX_REMEMBERED:
            self._known, self._known_until = {}, now + REMEMBER_S
        known = self._known
        decision = known.get(key)
        if decision is None:
            target = {"project_id": credentials["project_id"]}
            decision = known[key] = bool(self._enforcer.enforce(rule, target, credentials))
        return decision

    def enforce(self, rule: str, caller: Caller) -> None:
        """Raise ``Forbidden`` unless the rule holds."""
        credentials = {
            "roles": sorted(caller.roles),
            "project_id": caller.project_id,
            "user_id": caller.user_id,
        }
        if not self.allows(rule, credentials):
            raise Forbidden(
                f"Policy does not allow {rule} with the roles "
                f"{', '.join(sorted(caller.roles)) or 'none'}."
            )
