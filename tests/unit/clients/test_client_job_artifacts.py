# SPDX-License-Identifier: Apache-2.0
"""Artifacts are listed and downloaded: whole, and never outside the destination."""

from __future__ import annotations

import pytest
from client_answers import ENDED, artifact
from fake_api import JOB_ID, Answer


def test_download(openstack, api, tmp_path):
    root = f"/v1/jobs/{JOB_ID}"
    api.on("GET", root, Answer(body={"job": ENDED}))
    api.on(
        "GET",
        f"{root}/artifacts",
        Answer(
            body={
                "artifacts": [
                    artifact("1/0/out/model.npz", b"\x00weights"),
                    artifact("1/0/log.txt", b"x"),
                ],
                "links": [],
            }
        ),
    )
    api.on("GET", f"{root}/artifacts/1/0/out/model.npz", Answer(raw=b"\x00weights"))
    ran = openstack(
        "gpu", "job", "download", JOB_ID, "--dest", str(tmp_path / "d"), "--path", "1/0/out"
    )
    assert ran.code == 0, ran.err
    files = [one for one in (tmp_path / "d").rglob("*") if one.is_file()]
    assert files == [tmp_path / "d/1/0/out/model.npz"]
    assert files[0].read_bytes() == b"\x00weights"
    listed = openstack("gpu", "job", "artifacts", JOB_ID, "-f", "value", "-c", "path").text
    assert listed == "1/0/out/model.npz\n1/0/log.txt\n"


@pytest.mark.parametrize(
    "path",
    ["../evil", "/etc/evil", "a/../../evil", "a//b", "link/evil", "a\\..\\evil", "a/\x1b[2Jx"],
)
def test_download_refuses_paths_that_lead_out(openstack, api, tmp_path, path):
    dest = tmp_path / "d"
    dest.mkdir()
    (dest / "link").symlink_to(tmp_path)
    root = f"/v1/jobs/{JOB_ID}"
    api.on("GET", root, Answer(body={"job": ENDED}))
    api.on(
        "GET", f"{root}/artifacts", Answer(body={"artifacts": [artifact(path, b"x")], "links": []})
    )
    ran = openstack("gpu", "job", "download", JOB_ID, "--dest", str(dest))
    assert ran.code == 1
    assert "leads out of" in ran.err
    assert "\x1b" not in ran.err
    assert [one.name for one in tmp_path.rglob("*")] == ["d", "link"]


def test_download_that_arrives_broken_leaves_nothing(openstack, api, tmp_path):
    root = f"/v1/jobs/{JOB_ID}"
    api.on("GET", root, Answer(body={"job": ENDED}))
    api.on(
        "GET",
        f"{root}/artifacts",
        Answer(body={"artifacts": [artifact("1/0/a", b"whole")], "links": []}),
    )
    api.on("GET", f"{root}/artifacts/1/0/a", Answer(raw=b"other"))
    ran = openstack("gpu", "job", "download", JOB_ID, "--dest", str(tmp_path))
    assert ran.code == 1
    assert "did not arrive whole" in ran.err
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == []
