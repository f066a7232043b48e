# SPDX-License-Identifier: Apache-2.0
"""Which persona may do what, as the default rules say."""

import pytest
from oslo_config import cfg

from gpuservice import policies
from gpuservice.auth.enforcer import MAX_REMEMBERED, Enforcer
from gpuservice.domain.context import Caller
from gpuservice.domain.errors import Forbidden

#: role -> the personas it holds, strongest first
HOLDS = {
    "admin": {"admin", "service", "manager", "member", "reader"},
    "manager": {"manager", "member", "reader"},
    "member": {"member", "reader"},
    "reader": {"reader"},
    "service": {"service", "reader"},
    "stranger": set(),
}
RULES = {rule.name: rule for rule in policies.list_rules()}
OPERATIONS = [name for name in RULES if name.startswith("gpu:")]


@pytest.fixture(scope="module")
def enforcer():
    conf = cfg.ConfigOpts()
    conf([], default_config_files=[])
    return Enforcer(conf)


@pytest.mark.parametrize("role", HOLDS)
def test_personas(enforcer, role):
    caller = Caller("p", "u", frozenset({role}))
    for name in OPERATIONS:
        persona = RULES[name].check_str.removeprefix("rule:")
        if persona in HOLDS[role]:
            enforcer.enforce(name, caller)
            continue
        with pytest.raises(Forbidden) as caught:
            enforcer.enforce(name, caller)
        assert name in caught.value.detail


def test_role_names_are_not_split_or_guessed(enforcer):
    for roles in ({"administrator"}, {"admin member"}, {"*"}, set()):
        with pytest.raises(Forbidden):
            enforcer.enforce("gpu:gpu-types:list", Caller("p", "u", frozenset(roles)))


def test_every_operation_is_documented():
    for name in OPERATIONS:
        rule = RULES[name]
        assert rule.description and rule.operations, name
        for operation in rule.operations:
            assert operation["path"].startswith("/v1/"), name


def test_rules_can_be_overridden(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text('"gpu:hosts:list": "role:auditor"\n')
    settings = tmp_path / "gpuservice.conf"
    settings.write_text(f"[oslo_policy]\npolicy_file = {policy}\n")
    conf = cfg.ConfigOpts()
    conf(["--config-file", str(settings)], default_config_files=[])
    enforcer = Enforcer(conf)
    enforcer.enforce("gpu:hosts:list", Caller("p", "u", frozenset({"auditor"})))
    with pytest.raises(Forbidden):
        enforcer.enforce("gpu:hosts:list", Caller("p", "u", frozenset({"admin"})))


def test_decisions_are_remembered_for_a_while_only(enforcer, monkeypatch):
    caller = Caller("p2", "u2", frozenset({"member"}))
    asked = []
    inner = enforcer._enforcer.enforce
    monkeypatch.setattr(enforcer._enforcer, "enforce", lambda *a: asked.append(a[0]) or inner(*a))
    for _ in range(3):
        enforcer.enforce("gpu:jobs:create", caller)
    assert len(asked) == 1
    enforcer._known_until = 0.0
    enforcer.enforce("gpu:jobs:create", caller)
    assert len(asked) == 2


def test_remembered_decisions_are_bounded(enforcer):
    for number in range(MAX_REMEMBERED + 10):
        enforcer.allows(
            "gpu:jobs:list", {"roles": ["reader"], "project_id": f"p{number}", "user_id": "u"}
        )
    assert len(enforcer._known) <= MAX_REMEMBERED
