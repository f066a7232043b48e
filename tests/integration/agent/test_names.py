# SPDX-License-Identifier: Apache-2.0
"""Files of tasks whose names nothing can be kept under: they cost the job themselves alone."""

from __future__ import annotations

import http.server
import threading
from urllib.parse import unquote_to_bytes

import pytest

#: Makes files of every unfit kind below one folder, and fit ones around them.
SCRIPT = r"""
python3 - <<'END'
import os
os.makedirs("out", exist_ok=True)
os.chdir("out")
for name in (b"a", b"zz", b"b\xff", "e\u0301".encode(), b"new\nline", b"back\\slash"):
    with open(name, "wb") as file:
        file.write(b"data")
deep = os.open(".", os.O_RDONLY)
for _ in range(70):
    os.mkdir(b"d" * 200, dir_fd=deep)
    deep = os.open(b"d" * 200, os.O_RDONLY, dir_fd=deep)
    for name in (b"f\xfe" * 100, b"g"):
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=deep))
print("x" * 100_000)
END
"""
FIT = {"out/a", "out/zz", f"out/{'d' * 200}/g", f"out/{'d' * 200}/{'d' * 200}/g"}


def test_unfit_outputs_keep_nothing_else_back(api, agent):
    api.want("t1", script=SCRIPT, outputs=[{"path": "out/"}])
    report = api.until_gone("t1")
    assert report["exit_code"] == 0
    assert {path for _, path in api.artifacts} == FIT
    failure = report["failure"]
    assert failure["class"] == "data", failure
    assert "was not kept" in failure["evidence"]
    failure["evidence"].encode()  # text that any service takes
    notes = api.log("t1", "stderr").decode()
    for name in (r"b\udcff", r"new\nline", r"back\\slash", "nested deeper"):
        assert name in notes, notes[:4000]
    assert len(api.log("t1")) == 100_001


@pytest.mark.parametrize("interval_s", [None, 1])
def test_unfit_names_in_a_checkpoint(api, agent, interval_s):
    checkpoint = {"path": "out/", "interval_s": interval_s, "ranks": "first"}
    wait = "" if interval_s is None else "sleep 300"
    outputs = [{"path": "out/a"}]
    api.want("t1", script=f"{SCRIPT}\n{wait}", checkpoint=checkpoint, outputs=outputs)
    if interval_s:
        api.until(lambda: api.sets.get("t1"), "a checkpoint of the running task")
        api.stop("t1", grace_s=0)
    assert api.until_gone("t1")["failure"] is None
    assert set(api.restore) == FIT
    assert {path for _, path in api.artifacts} == {"out/a"}
    assert r"kept without 'out/b\udcff'" in api.log("t1", "stderr").decode()


def test_a_name_that_only_the_service_refuses(api, agent):
    api.refused_name = "odd"
    checkpoint = {"path": "out/", "interval_s": None, "ranks": "first"}
    script = "mkdir out; cd out; for name in a odd z; do echo $name > $name; done"
    api.want("t1", script=script, checkpoint=checkpoint, outputs=[{"path": "out/"}])
    assert api.until_gone("t1")["failure"]["class"] == "data"
    assert set(api.restore) == {path for _, path in api.artifacts} == {"out/a", "out/z"}


def test_targets_on_the_web_take_any_name(api, make_agent):
    stored = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            """Quiet."""

        def do_PUT(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            stored.append(unquote_to_bytes(self.path))
            self.send_response(201)
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        make_agent(allow_loopback_http=True).start()
        script = r"""mkdir out; cd out; for name in a '?b' '#c' 'd e' "$(printf 'f\377')" é; do
            echo x > "$name"; done"""
        target = f"http://127.0.0.1:{server.server_address[1]}/kept/"
        api.want("t1", script=script, outputs=[{"path": "out/", "target": target}])
        assert api.until_gone("t1")["failure"] is None
    finally:
        server.shutdown()
        server.server_close()
    names = (b"a", b"?b", b"#c", b"d e", b"f\xff", "é".encode())
    assert set(stored) == {b"/kept/" + name for name in names}
