# SPDX-License-Identifier: Apache-2.0
"""Policy, by oslo.policy with the defaults in code."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_policy import policy

from gpuservice import policies
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Forbidden


class Enforcer:
    """Decides whether a caller may do something."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._enforcer = policy.Enforcer(conf, use_conf=bool(conf.config_file))
        self._enforcer.register_defaults(policies.list_rules())

    def allows(self, rule: str, credentials: dict[str, Any]) -> bool:
        """Whether a rule holds for credentials (``roles``, ``project_id``, ``user_id``)."""
        target = {"project_id": credentials["project_id"]}
        return bool(self._enforcer.enforce(rule, target, credentials))

    def enforce(self, rule: str, caller: Caller) -> None:
        """Raise ``Forbidden`` unless the rule holds."""
        credentials = {"roles": sorted(caller.roles), "project_id": caller.project_id,
                       "user_id": caller.user_id}
        if not self.allows(rule, credentials):
            raise Forbidden(f"Policy does not allow {rule} with the roles "
                            f"{', '.join(sorted(caller.roles)) or 'none'}.")
