# SPDX-License-Identifier: Apache-2.0
"""A secret is changed without ever being lost, whatever is lost on the way."""

from __future__ import annotations

import pytest

from gpuservice.agent.credentials import IdentityFile
from gpuservice.agent.errors import ApiAway, Refused, Revoked
from gpuservice.agent.node_secret import NodeSecret


class Service:
    """Knows one secret."""

    def __init__(self, known):
        self.known, self.calls = known, 0
        self.fails_before = self.fails_after = self.old = False

    def change_secret(self, new, bearer):
        self.calls += 1
        if self.old:
            raise Refused(404, "gpu.not_found", "", {})
        if self.fails_before:
            raise ApiAway("request lost")
        if bearer != self.known:
            raise Revoked(401, "gpu.auth.required", "", {})
        self.known = new
        if self.fails_after:
            raise ApiAway("answer lost")


class Node:
    """The agent's side, which may be started anew."""

    def __init__(self, directory):
        self.directory, self.now = str(directory), 1e9
        self.start()
        self.service = Service(self.secret.current)

    def start(self):
        self.secret = NodeSecret(IdentityFile(self.directory, "n"), 100, lambda: self.now)

    def later(self):
        self.now = max(self.now, 4e9) + 200


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_an_old_secret_is_changed_and_kept(node):
    first = node.secret.current
    node.secret.rotate_if_due(node.service)
    assert (node.service.calls, node.secret.current) == (0, first)
    node.later()
    node.secret.know_epoch(7)
    node.secret.rotate_if_due(node.service)
    assert node.secret.current == node.service.known != first
    assert node.secret.newer_than(first) == node.service.known
    assert node.secret.newer_than(node.service.known) is None
    node.secret.rotate_if_due(node.service)
    assert node.service.calls == 1
    node.start()
    assert (node.secret.current, node.secret.epoch) == (node.service.known, 7)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("lost", ["fails_before", "fails_after"])
def test_what_is_lost_is_asked_again(node, lost, restarted):
    node.later()
    setattr(node.service, lost, True)
    with pytest.raises(ApiAway):
        node.secret.rotate_if_due(node.service)
    assert node.secret.in_doubt
    setattr(node.service, lost, False)
    if restarted:
        node.start()
    node.secret.settle(node.service)
    assert not node.secret.in_doubt
    assert node.secret.current == node.service.known


def test_a_service_that_cannot_do_it_leaves_all_as_it_is(node):
    node.later()
    node.service.old = True
    node.secret.rotate_if_due(node.service)
    assert node.secret.current == node.service.known
    node.secret.rotate_if_due(node.service)
    assert node.service.calls == 1  # and it is not asked again at once


def test_a_revoked_node_changes_nothing(node):
    node.later()
    node.service.known = "another"
    before = node.secret.current
    node.secret.rotate_if_due(node.service)
    assert (node.secret.current, node.secret.in_doubt) == (before, False)
