# SPDX-License-Identifier: Apache-2.0
"""Inputs, outputs and checkpoints of real tasks."""

from __future__ import annotations

import contextlib
import http.server
import os
import threading

import pytest

from gpuservice.agent import process_tree
from tests.integration.agent.conftest import until


@pytest.fixture
def files(tmp_path):
    """A directory open for file URLs, writable for every task's user."""
    root = tmp_path / "data"
    root.mkdir()
    root.chmod(0o1777)
    (root / "in.txt").write_text("input\n")
    return root


@pytest.fixture
def web():
    """A web server with one page, a redirect to it and one to a forbidden address."""
    stored, slow = {}, threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            """Quiet."""

        def do_GET(self):
            if self.path == "/drip":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                with contextlib.suppress(OSError):
                    while not slow.wait(0.5):
                        self.wfile.write(b".")
                return
            if self.path == "/slow":
                slow.wait(30)
                self.path = "/page"
            target = {"/moved": "/page", "/away": "http://169.254.169.254/latest"}.get(self.path)
            self.send_response(302 if target else 200 if self.path == "/page" else 404)
            if target:
                self.send_header("Location", target)
            self.send_header("Content-Length", "0" if self.path != "/page" else "4")
            self.end_headers()
            self.wfile.write(b"page" if self.path == "/page" else b"")

        def do_PUT(self):
            stored[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(201)
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.stored, server.slow = stored, slow
    yield server
    server.shutdown()
    server.server_close()


def test_inputs_by_file_and_http(api, make_agent, files, web):
    make_agent(file_roots=[str(files)], allow_loopback_http=True).start()
    base = f"http://127.0.0.1:{web.server_address[1]}"
    api.want(
        "t1",
        command=["sh", "-c", "cat data/in.txt renamed page2"],
        inputs=[
            {"source": f"file://{files}/in.txt", "path": "data/"},
            {"source": f"file://{files}/in.txt", "path": "renamed"},
            {"source": f"{base}/moved", "path": "page2"},
        ],
    )
    assert api.until_gone("t1")["exit_code"] == 0
    assert api.log("t1") == b"input\ninput\npage"


def test_a_time_limit_changed_during_preparation_holds(api, make_agent, web):
    make_agent(allow_loopback_http=True).start()
    source = f"http://127.0.0.1:{web.server_address[1]}/slow"
    spec = {"time_limit_s": 600, "inputs": [{"source": source, "path": "page"}]}
    api.want("t1", command=["sleep", "300"], grace_s=1, **spec)
    api.until_state("t1", "preparing")
    api.limit("t1", 1)
    api.until(lambda: api.applied == api.revision, "the new limit's arrival")
    web.slow.set()
    assert api.until_gone("t1")["timed_out"]


@pytest.mark.parametrize(
    ("source", "path", "kind"),
    [
        ("file://{root}/missing", "x", "data"),
        ("file:///etc/passwd", "x", "permission"),
        ("file://{root}/../../../../etc/passwd", "x", "permission"),
        ("file://{root}/link", "x", "data"),
        ("file://{root}/in.txt", "../x", "data"),
        ("http://{web}/missing", "x", "data"),
        ("http://{web}/away", "x", "permission"),
        ("http://169.254.169.254/latest", "x", "permission"),
        ("gopher://{web}/page", "x", "data"),
    ],
)
def test_inputs_that_cannot_be_had(api, make_agent, files, web, source, path, kind):
    (files / "link").symlink_to("/etc/passwd")
    make_agent(file_roots=[str(files)], allow_loopback_http=True).start()
    name = f"127.0.0.1:{web.server_address[1]}"
    api.want(
        "t1",
        command=["true"],
        inputs=[{"source": source.format(root=files, web=name), "path": path}],
    )
    report = api.until_gone("t1")
    assert report["failure"]["class"] == kind
    assert report["exit_code"] is None


def test_loopback_is_refused_by_default(api, agent, web):
    api.want(
        "t1",
        command=["true"],
        inputs=[{"source": f"http://127.0.0.1:{web.server_address[1]}/page", "path": "x"}],
    )
    failure = api.until_gone("t1")["failure"]
    assert failure["class"] == "permission", failure


def test_slow_inputs_hold_up_nobody_and_end_with_their_task(api, make_agent, web):
    agent = make_agent(allow_loopback_http=True).start()
    source = f"http://127.0.0.1:{web.server_address[1]}/drip"
    slow = [f"slow-{number}" for number in range(10)]
    for task_id in slow:
        api.want(task_id, command=["true"], inputs=[{"source": source, "path": "x"}])
    api.until(lambda: all(api.states.get(one) == "preparing" for one in slow), "the downloads")

    def helpers():
        (spawner,) = process_tree.descendants(agent.process.pid)[:1]
        return process_tree.descendants(spawner)

    until(lambda: len(helpers()) == len(slow), "the helpers")
    api.want("good", script="echo y > o\n", outputs=[{"path": "o"}])
    assert api.until_gone("good", 10)["exit_code"] == 0
    assert api.artifacts == {("good", "o"): b"y\n"}
    for task_id in slow:
        api.stop(task_id)
    for task_id in slow:
        api.until_gone(task_id, 10)
    until(lambda: helpers() == [], "the end of the helpers")


def test_outputs_are_kept_and_nothing_else(api, make_agent, files, web):
    make_agent(file_roots=[str(files)], allow_loopback_http=True).start()
    base = f"http://127.0.0.1:{web.server_address[1]}"
    api.want(
        "t1",
        script="""mkdir -p out/deep; echo a > out/a; echo b > out/deep/b; : > out/empty
        ln -s /etc/passwd out/link; mkfifo out/pipe; ln -s /etc out/etc; exit 3""",
        outputs=[
            {"path": "out/"},
            {"path": "out/link"},
            {"path": "../../order.json"},
            {"path": "missing"},
            {"path": "/etc/passwd"},
            {"path": "out/etc/passwd"},
            {"path": "out/deep/", "target": f"file://{files}/{{job_id}}/"},
            {"path": "out/a", "target": f"{base}/kept"},
            {"path": "out/a", "target": "file:///etc/gpuservice-stolen"},
        ],
    )
    report = api.until_gone("t1")
    assert report["exit_code"] == 3
    assert api.artifacts == {
        ("t1", "out/a"): b"a\n",
        ("t1", "out/deep/b"): b"b\n",
        ("t1", "out/empty"): b"",
    }
    assert (files / "job-1" / "b").read_text() == "b\n"
    assert web.stored == {"/kept": b"a\n"}
    assert not os.path.exists("/etc/gpuservice-stolen")
    notes = api.log("t1", "stderr").decode()
    for word in ("out/link", "out/pipe", "missing", "order.json", "gpuservice-stolen"):
        assert word in notes


def test_outputs_that_cannot_be_delivered_fail_the_task(api, make_agent, files, web):
    shared = files / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    make_agent(file_roots=[str(files)], allow_loopback_http=True).start()

    def deliver(task_id, target):
        api.want(
            task_id,
            script=f"echo {task_id} > a\n",
            outputs=[{"path": "a", "target": target}, {"path": "a"}],
        )
        return api.until_gone(task_id)["failure"]

    assert deliver("t1", f"file://{shared}/out/one") is None
    assert deliver("t2", f"file://{shared}/out/two") is None  # another user, the same folder
    assert {path.name: path.read_text() for path in (shared / "out").iterdir()} == {
        "one": "t1\n",
        "two": "t2\n",
    }
    failures = {
        "s3": deliver("s3", "s3://bucket/key"),
        "foreign": deliver("foreign", "file:///etc/stolen"),
    }
    if os.geteuid() == 0:
        failures["taken"] = deliver("taken", f"file://{shared}/out/one")
    assert {name: one["class"] for name, one in failures.items()} == {
        "s3": "data",
        **dict.fromkeys(failures.keys() - {"s3"}, "permission"),
    }
    assert (shared / "out" / "one").read_text() == "t1\n"
    assert api.artifacts["s3", "a"] == b"s3\n"  # one that fails does not keep the others back


def test_checkpoint_and_resume(api, agent):
    script = """
        cat "$GPUSERVICE_CHECKPOINT_DIR/step" 2>/dev/null; echo "$GPUSERVICE_RESUMED"
        trap 'echo last > "$GPUSERVICE_CHECKPOINT_DIR/step"; exit 0' TERM
        mkdir -p "$GPUSERVICE_CHECKPOINT_DIR"; cd "$GPUSERVICE_CHECKPOINT_DIR"
        echo half > x.tmp; echo one > new; mv new step
        while :; do sleep 0.05; done"""
    checkpoint = {"path": "ckpt/", "interval_s": 1, "ranks": "first"}
    api.want("t1", script=script, checkpoint=checkpoint)
    api.until(lambda: api.sets.get("t1"), "the first checkpoint")
    assert [one["path"] for one in api.sets["t1"][0]["files"]] == ["ckpt/step"]
    assert api.restore == {"ckpt/step": b"one\n"}
    api.stop("t1")
    assert api.until_gone("t1")["exit_code"] == 0
    assert api.restore == {"ckpt/step": b"last\n"}
    api.want("t2", script=script, checkpoint=checkpoint, restore_checkpoint=True)
    api.until(lambda: api.log("t2") == b"last\n1\n", "the resumed task's output")
    api.stop("t2", grace_s=0)
    api.until_gone("t2")
    api.want("t3", script="echo $GPUSERVICE_RESUMED", checkpoint=checkpoint, rank=1)
    api.until_gone("t3")
    assert "t3" not in api.sets
    until(lambda: agent.processes_of("t2") == [], "the end")


@pytest.mark.parametrize("bound", ["one file", "all", "files"])
def test_a_checkpoint_that_is_too_large_is_not_even_copied(api, make_agent, bound):
    settings = {"all": {"checkpoint_max_bytes": 10_000}, "files": {"artifact_max_files": 2}}
    agent = make_agent(**settings.get(bound, {})).start()
    size = "8000" if bound != "one file" else "8T"  # sparse: more than any disk here has
    script = f"""
        mkdir ckpt; cd ckpt; echo good > a; sleep 2
        for name in b c; do truncate -s {size} $name; done; sleep 300"""
    api.want("t1", script=script, checkpoint={"path": "ckpt/", "interval_s": 1, "ranks": "first"})
    api.until(lambda: api.sets.get("t1"), "the checkpoint before")
    until(lambda: "checkpoint not kept" in agent.log.read_text(), "the refusal")
    api.until(lambda: faults(api), "word of it while the task runs")
    assert api.states["t1"] == "running"
    api.stop("t1", grace_s=0)
    assert api.until_gone("t1")["failure"] is None
    assert api.restore == {"ckpt/a": b"good\n"}
    assert {path for _, _, path in api.checkpoints} == {"ckpt/a"}  # nor sent in part
    assert b"the last checkpoint was not kept" in api.log("t1", "stderr")
    assert [one["reason"] for one in faults(api)] == ["too_large"]  # once


def faults(api):
    """What was told of checkpoints that were not kept."""
    return [one["checkpoint_fault"] for one in api.reports if "checkpoint_fault" in one]
