# SPDX-License-Identifier: Apache-2.0
"""``gpuservice-manage simulated``: wrong words cost a sentence, and change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuservice.cmd import manage
from gpuservice.drivers.cloud.simulated_state import SimulatedState


def run(place: Path, *words: str) -> int:
    return manage.main(["simulated", "--state-dir", str(place), *words])


@pytest.mark.parametrize(
    "pair",
    [
        "fail_rate=abc",
        "fail_rate",
        "fail_rate=2",
        'fail_rate="x"',
        "fail_next_builds=1.5",
        "fail_next_builds=true",
        "build_delay_s=-1",
        "unhealthy_devices=5",
        "unhealthy_devices=[5]",
        'lost_hosts=["gpu-00"]x',
        "no_such_key=1",
    ],
)
def test_a_wrong_value_is_named(tmp_path, capsys, pair):
    assert run(tmp_path, "set", pair) == 2
    said = capsys.readouterr().err
    assert pair.partition("=")[0] in said and said.count("\n") == 1
    assert not (tmp_path / "control.json").exists()


def test_right_values_are_taken(tmp_path):
    assert run(tmp_path, "set", "fail_rate=1", "fail_next_builds=3", 'lost_hosts=["a"]') == 0
    control = SimulatedState(tmp_path).control()
    assert (control["fail_rate"], control["fail_next_builds"], control["lost_hosts"]) == (
        1,
        3,
        ["a"],
    )


@pytest.mark.parametrize("words", [("lose-host", "gpu-00"), ("set", "fail_rate=0.5")])
def test_no_cloud_is_made_up(tmp_path, capsys, words):
    assert run(tmp_path / "nowhere", *words) == 1
    assert "no simulated cloud" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()
