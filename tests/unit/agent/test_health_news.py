# SPDX-License-Identifier: Apache-2.0
"""Syncs speak of devices when there is something to say, and now and then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuservice.agent.health_news import AGAIN_S, HealthNews
from gpuservice.agent.wire import DeviceHealth

GOOD = (DeviceHealth(address="a"), DeviceHealth(address="b"))
BAD = (GOOD[0], DeviceHealth(address="b", healthy=False, reason="it fell off the bus"))


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(now=100.0)
    monkeypatch.setattr("gpuservice.agent.health_news.time.monotonic", lambda: now.now)
    return now


def test_a_change_is_said_at_once_until_it_is_heard(clock):
    probe = SimpleNamespace(health=lambda: GOOD)
    news = HealthNews(probe)
    assert news.due() == GOOD
    assert news.due() == GOOD  # nobody answered
    news.heard(GOOD, clock.now)
    assert news.due() == ()
    probe.health = lambda: BAD
    assert news.due() == BAD
    news.heard((), clock.now)  # a sync that said nothing of devices was answered meanwhile
    assert news.due() == BAD
    clock.now += 1
    news.heard(BAD, clock.now)
    assert news.due() == ()


def test_all_of_it_is_said_again_now_and_then(clock):
    news = HealthNews(SimpleNamespace(health=lambda: GOOD))
    news.heard(GOOD, clock.now)
    clock.now += AGAIN_S - 0.1
    assert news.due() == ()
    clock.now += 0.2
    assert news.due() == GOOD


def test_time_counts_from_the_saying_not_from_the_answer(clock):
    """A poll is answered after 20 seconds where nothing happens."""
    news = HealthNews(SimpleNamespace(health=lambda: GOOD))
    began = clock.now
    clock.now += 20
    news.heard(GOOD, began)
    assert news.due() == GOOD


def test_a_late_answer_to_an_old_word_does_not_undo_a_newer_one(clock):
    probe = SimpleNamespace(health=lambda: GOOD)
    news = HealthNews(probe)
    news.heard(BAD, clock.now + 1)
    news.heard(GOOD, clock.now)
    clock.now += 2
    assert news.due() == GOOD


def test_a_node_without_devices_says_nothing(clock):
    assert HealthNews(SimpleNamespace(health=list)).due() == ()
