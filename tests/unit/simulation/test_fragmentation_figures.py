# SPDX-License-Identifier: Apache-2.0
"""The benchmark of packing policies, on lists of a few lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.scheduling import fragmentation

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{index},64000,262144,8,G2\n" for index in range(20)
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{index},4000,1024,1,{milli},\n" for index, milli in enumerate([810, 190, 1000, 470] * 50)
)
PUBLISHED = """metric,workload,policy,arrived_pct,seeds,mean
alloc_pct,openb_pod_list_small,06-FGD,100,10,90.5
alloc_pct,openb_pod_list_small,06-FGD,50,10,50.0
frag_pct,openb_pod_list_small,06-FGD,100,10,7.0
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_small.csv").write_text(PODS)
    (tmp_path / "published.csv").write_text(PUBLISHED)
    return tmp_path


def _words(files: Path, *more: str) -> list[str]:
    words = [str(files), "--nodes", str(files / "nodes.csv"), "--seeds", "2", "--processes", "1"]
    return [*words, "--output", str(files / "found" / "o.json"), *more]


def test_table_and_json(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = ["fgd", "default:known=arrivals", "default+queue:hold=true,batch=5"]
    chosen = [word for policy in policies for word in ("--policy", policy)]
    fragmentation.main(_words(files, "--published", str(files / "published.csv"), *chosen))

    result = json.loads((files / "found" / "o.json").read_text())
    assert set(result["lists"]["small"]) == set(policies)
    found = result["lists"]["small"]["fgd"]
    assert found["published"] == 90.5
    assert found["allocation_at_100"] == found["allocation_ratio"]["100"]
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("| list | fgd, published | fgd | default:known=arrivals |")
    gain = found["allocation_at_100"] - 90.5
    assert rows[2].startswith(f"| small | 90.50 | {90.5 + gain:.2f} ({gain:+.2f}) |")
    assert rows[3].startswith("| *mean difference* | - | ")


@pytest.mark.parametrize(
    ("policy", "fault"),
    [("best", "no packing policy 'best'"), ("fgd:speed=1", "no packing option 'speed'")],
)
def test_wrong_words_end_it(files: Path, policy: str, fault: str) -> None:
    with pytest.raises(SystemExit, match=fault):
        fragmentation.main(_words(files, "--policy", policy))


def test_too_small_a_list_ends_it(files: Path) -> None:
    (files / "openb_pod_list_small.csv").write_text("".join(PODS.splitlines(True)[:2]))
    with pytest.raises(SystemExit, match="no request comes at 100 %"):
        fragmentation.main(_words(files, "--policy", "fgd", "--inflation", "0.5"))


def test_no_list_ends_it(files: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(SystemExit, match="no pod list"):
        fragmentation.main([str(tmp_path / "none"), "--nodes", str(files / "nodes.csv")])


def test_an_ended_run_goes_on_where_it_was(files: Path) -> None:
    fragmentation.main(_words(files, "--policy", "bestfit"))
    output = files / "found" / "o.json"
    earlier = json.loads(output.read_text())
    earlier["lists"]["small"]["bestfit"]["allocation_at_100"] = 12.5
    output.write_text(json.dumps(earlier))

    fragmentation.main(_words(files, "--policy", "bestfit", "--policy", "packing", "--resume"))

    found = json.loads(output.read_text())["lists"]["small"]
    assert found["bestfit"]["allocation_at_100"] == 12.5
    assert set(found) == {"bestfit", "packing"}
    with pytest.raises(SystemExit, match="of other settings"):
        fragmentation.main(_words(files, "--policy", "fgd", "--seeds", "3", "--resume"))


def test_the_planner_itself_packs_as_the_study_does(files: Path) -> None:
    policies = ("planner", "default:known=arrivals", "random")
    chosen = [word for policy in policies for word in ("--policy", policy)]
    fragmentation.main(_words(files, *chosen))
    found = json.loads((files / "found" / "o.json").read_text())["lists"]["small"]
    reached = {policy: found[policy]["allocation_at_100"] for policy in policies}
    assert reached["planner"] >= reached["default:known=arrivals"] - 2.0
    assert reached["planner"] > reached["random"]
