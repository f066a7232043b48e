# SPDX-License-Identifier: Apache-2.0
"""Policy rules as data, one entry an operation; personas admin, manager, member, reader."""

from __future__ import annotations

from oslo_policy import policy

from gpuservice.policies.rules import BASES, OPERATIONS


def list_rules() -> list[policy.RuleDefault]:
    """Every rule, for the enforcer and for the sample file."""
    rules: list[policy.RuleDefault] = [
        policy.RuleDefault(name, check, description=text) for name, check, text in BASES
    ]
    rules.extend(
        policy.DocumentedRuleDefault(
            name=name,
            check_str=f"rule:{persona}",
            description=text,
            operations=[{"method": method, "path": path} for method, path in operations],
        )
        for name, persona, text, operations in OPERATIONS
    )
    return rules
