# SPDX-License-Identifier: Apache-2.0
"""TLS with an authority of our own: the service's, and that of data sources."""

from __future__ import annotations

import http.server
import threading

import pytest
from cryptography import x509

from tests.integration.agent.authority import Authority
from tests.integration.agent.conftest import until
from tests.integration.agent.fake_api import FakeApi


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def page(authority):
    """The URL of a page behind TLS, and what was put there."""
    stored = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            """Quiet."""

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"page")

        def do_PUT(self):
            stored[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(201)
            self.end_headers()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = authority.server_context().wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_address[1]}", stored
    server.shutdown()
    server.server_close()


def test_data_by_https_from_an_authority_of_the_settings(api, make_agent, authority, page):
    url, stored = page
    make_agent(allow_loopback_http=True, data_ca_file=str(authority.ca_file)).start()
    api.want(
        "t1",
        command=["sh", "-c", "cat in; echo kept > out"],
        inputs=[{"source": f"{url}/page", "path": "in"}],
        outputs=[{"path": "out", "target": f"{url}/out"}],
    )
    assert api.until_gone("t1")["exit_code"] == 0
    assert api.log("t1") == b"page"
    assert stored == {"/out": b"kept\n"}


def test_data_from_an_unknown_authority_is_refused(api, make_agent, page):
    url, _ = page
    make_agent(allow_loopback_http=True).start()
    api.want("t1", command=["true"], inputs=[{"source": f"{url}/page", "path": "in"}])
    failure = api.until_gone("t1")["failure"]
    assert failure["class"] == "data"
    assert "certificate verify failed" in failure["evidence"].lower()


def test_data_under_another_name_is_refused(api, make_agent, authority, page):
    url, _ = page
    make_agent(allow_loopback_http=True, data_ca_file=str(authority.ca_file)).start()
    source = f"{url}/page".replace("localhost", "127.0.0.2")
    api.want("t1", command=["true"], inputs=[{"source": source, "path": "in"}])
    assert api.until_gone("t1")["failure"]["class"] == "data"


def served_by(authority):
    made = FakeApi()
    made.server.socket = authority.server_context().wrap_socket(
        made.server.socket, server_side=True
    )
    return made


def secure(agent, made, ca_file):
    """Send an agent to a service behind TLS."""
    port = made.server.server_address[1]
    text = agent.user_data.read_text().replace('"ca_file": null', f'"ca_file": "{ca_file}"')
    start = text.index("http://127.0.0.1:")
    old = text[start : text.index('"', start)]
    agent.user_data.write_text(text.replace(old, f"https://localhost:{port}"))
    return agent.start()


def test_a_service_behind_tls(make_agent, authority):
    made = served_by(authority)
    try:
        secure(make_agent(), made, authority.ca_file)
        made.want("t1", script="echo hello\n", outputs=[])
        assert made.until_gone("t1")["exit_code"] == 0
        assert made.log("t1") == b"hello\n"
    finally:
        made.close()


def test_a_service_of_an_unknown_authority_gets_no_token(make_agent, authority, tmp_path):
    made = served_by(authority)
    other = tmp_path / "other"
    other.mkdir()
    stranger = Authority(other, "another authority")
    assert x509.load_pem_x509_certificate(stranger.ca_file.read_bytes())
    try:
        agent = secure(make_agent(), made, stranger.ca_file)
        until(lambda: "certificate verify failed" in agent.log.read_text(), "the refusal")
        assert made.registrations == []
        assert agent.process.poll() is None  # it is an outage: tasks go on, it tries again
    finally:
        made.close()


def test_the_secret_is_changed_under_running_tasks(make_agent, authority):
    made = served_by(authority)
    made.lose_answers = 1
    try:
        agent = secure(make_agent(rotate_secret_s=1, max_wait_s=0.2), made, authority.ca_file)
        script = "for n in 1 2 3 4 5 6; do echo $n; echo $n > out; sleep 0.5; done"
        made.want("t1", script=script, outputs=[{"path": "out"}])
        made.until(lambda: made.secrets >= 3, "three changes", 20)
        assert made.until_gone("t1")["exit_code"] == 0
        assert made.log("t1") == b"1\n2\n3\n4\n5\n6\n"
        assert made.artifacts[("t1", "out")] == b"6\n"
        agent.end()
        agent.start()
        made.want("t2", command=["true"])
        assert made.until_gone("t2")["exit_code"] == 0
        assert agent.process.poll() is None
    finally:
        made.close()
