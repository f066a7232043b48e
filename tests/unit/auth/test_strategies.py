# SPDX-License-Identifier: Apache-2.0
"""Who is served as whom, and what a client may only claim."""

import base64
import time

import bcrypt
import pytest
from oslo_config import cfg

from gpuservice.auth import strategies
from gpuservice.auth.strategies import HttpBasic, Keystone, NoAuth, strategy
from gpuservice.conf import opts
from gpuservice.domain.errors import Forbidden, GpuServiceError, Invalid, Unauthenticated

LOCAL = {"REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "127.0.0.1:9797"}


def basic(user, password):
    word = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {word}"}


@pytest.fixture
def conf(tmp_path):
    conf = cfg.ConfigOpts()
    opts.register_all(conf)
    conf([], default_config_files=[])
    digest = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    (tmp_path / "htpasswd").write_text(
        f"# users\nada:{digest}\nbob:{digest.replace('$2b$', '$2y$')}\neve:{digest}\n"
    )
    (tmp_path / "users.yaml").write_text(
        "users:\n  ada: {project_id: vision, roles: [manager]}\n  bob: {project_id: speech}\n"
    )
    conf.set_override("http_basic_user_file", str(tmp_path / "htpasswd"), "api")
    conf.set_override("http_basic_identity_file", str(tmp_path / "users.yaml"), "api")
    return conf


# -- noauth ------------------------------------------------------------------------------------
def test_noauth_defaults():
    identity = NoAuth().identify(LOCAL)
    assert (identity.project_id, identity.roles) == ("default", {"member"})


def test_noauth_takes_the_word_of_the_client():
    identity = NoAuth().identify(
        {**LOCAL, "HTTP_X_PROJECT_ID": "p", "HTTP_X_USER_ID": "u", "HTTP_X_ROLES": "admin, x"}
    )
    assert (identity.project_id, identity.user_id) == ("p", "u")
    assert identity.roles == {"admin", "x"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1:80", "localhost:9797", "LocalHost", "[::1]:9797", "[::1]"]
)
def test_noauth_own_names(host):
    NoAuth().identify({**LOCAL, "HTTP_HOST": host})


@pytest.mark.parametrize(
    "change",
    [
        {"REMOTE_ADDR": "192.0.2.7"},
        {"REMOTE_ADDR": ""},
        {"REMOTE_ADDR": "::ffff:192.0.2.7"},
        {"HTTP_HOST": "evil.example"},
        {"HTTP_HOST": "localhost.evil.example"},
        {"HTTP_HOST": "127.0.0.1.evil.example:9797"},
        {"HTTP_HOST": ""},
        {"HTTP_HOST": "[::2]:1"},
        {"HTTP_HOST": "10.0.0.1"},
        {"HTTP_FORWARDED": "for=127.0.0.1"},
        {"HTTP_X_FORWARDED_FOR": "127.0.0.1"},
        {"HTTP_X_FORWARDED_HOST": "localhost"},
        {"HTTP_X_FORWARDED_PROTO": "https"},
    ],
)
def test_noauth_refuses_who_is_not_here(change):
    with pytest.raises(Forbidden):
        NoAuth().identify({**LOCAL, **change})


@pytest.mark.parametrize("header", ["HTTP_X_PROJECT_ID", "HTTP_X_USER_ID"])
@pytest.mark.parametrize("value", ["a" * 65, "a\tb", "\u00e9"])
def test_noauth_bounds_names(header, value):
    with pytest.raises(Invalid):
        NoAuth().identify({**LOCAL, header: value})


# -- http_basic --------------------------------------------------------------------------------
def test_basic_maps_users(conf):
    found = HttpBasic(conf).identify(basic("ada", "right"))
    assert (found.project_id, found.user_id, found.roles) == ("vision", "ada", {"manager"})
    assert HttpBasic(conf).identify(basic("bob", "right")).roles == {"member"}


def test_basic_ignores_identity_headers(conf):
    found = HttpBasic(conf).identify(
        {**basic("bob", "right"), "HTTP_X_PROJECT_ID": "vision", "HTTP_X_ROLES": "admin"}
    )
    assert (found.project_id, found.roles) == ("speech", {"member"})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        basic("ada", "wrong"),
        basic("nobody", "right"),
        basic("ada", ""),
        {"HTTP_AUTHORIZATION": "Basic"},
        {"HTTP_AUTHORIZATION": "Basic !!!"},
        {"HTTP_AUTHORIZATION": "Bearer abc"},
        {"HTTP_AUTHORIZATION": "Basic /w=="},
        {"HTTP_AUTHORIZATION": "Basic " + base64.b64encode(b"nocolon").decode()},
        basic("ada", "right\0x"),
        basic("ada", "x" * 10_000),
    ],
)
def test_basic_refuses(conf, environ):
    with pytest.raises(Unauthenticated):
        HttpBasic(conf).identify(environ)


def test_basic_user_without_project(conf):
    with pytest.raises(Forbidden):
        HttpBasic(conf).identify(basic("eve", "right"))


@pytest.mark.parametrize("costs", [(5,), (4, 6), (6, 4)])
def test_a_refusal_does_not_tell_which_users_there_are(conf, tmp_path, monkeypatch, costs):
    users = {f"u{cost}": bcrypt.hashpw(b"right", bcrypt.gensalt(cost)).decode() for cost in costs}
    (tmp_path / "htpasswd").write_text("".join(f"{k}:{v}\n" for k, v in users.items()))
    one = HttpBasic(conf)
    rounds = []
    check = bcrypt.checkpw
    monkeypatch.setattr(
        strategies.bcrypt,
        "checkpw",
        lambda word, digest: (
            rounds.append(
                2 ** int(digest.decode()[4:6] if isinstance(digest, bytes) else digest[4:6])
            )
            or check(word, digest)
        ),
    )
    spent = {}
    for user in (*users, "nobody"):
        rounds.clear()
        with pytest.raises(Unauthenticated):
            one.identify(basic(user, "wrong"))
        spent[user] = sum(rounds)
    assert set(spent.values()) == {2 ** max(costs)}


GOOD = "a:$2b$04$" + "a" * 53 + "\n"


@pytest.mark.parametrize(
    "wrong",
    [
        "bob:$apr1$x$y\n",
        "bob:plain\n",
        "bob\n",
        ":$2b$04$" + "a" * 53 + "\n",
        "bob:$2b$99$" + "a" * 53 + "\n",
        "bob:$2b$04$short\n",
    ],
)
def test_a_wrong_line_is_told_at_the_start(conf, tmp_path, wrong):
    (tmp_path / "htpasswd").write_text(f"{GOOD}{wrong}")
    with pytest.raises(strategies.UserFileError, match="htpasswd, line 2"):
        HttpBasic(conf)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "users:",
        "[]",
        "users: [ada]",
        "users: {ada: {}}",
        "users: {ada: {project_id: null}}",
        "users: {ada: {project_id: p, roles: admin}}",
        "users: {ada: {project_id: p, roles: [1]}}",
        "users: {1: {project_id: p}}",
        "users: {",
    ],
)
def test_wrong_identities_are_told_at_the_start(conf, tmp_path, wrong):
    (tmp_path / "users.yaml").write_text(wrong)
    with pytest.raises(strategies.UserFileError, match=r"users\.yaml"):
        HttpBasic(conf)


@pytest.mark.parametrize("name", ["htpasswd", "users.yaml"])
def test_a_missing_file_is_told_at_the_start(conf, tmp_path, name):
    (tmp_path / name).unlink()
    with pytest.raises(strategies.UserFileError, match=name):
        HttpBasic(conf)


def test_basic_remembers_what_was_verified(conf, monkeypatch):
    one = HttpBasic(conf)
    calls = []
    check = bcrypt.checkpw
    monkeypatch.setattr(strategies.bcrypt, "checkpw", lambda *a: calls.append(1) or check(*a))
    for _ in range(5):
        one.identify(basic("ada", "right"))
    assert len(calls) == 1
    with pytest.raises(Unauthenticated):
        one.identify(basic("ada", "wrong"))
    assert len(calls) == 2


def test_basic_forgets_after_a_while(conf, monkeypatch):
    one = HttpBasic(conf)
    one.identify(basic("ada", "right"))
    later = time.monotonic() + strategies.REMEMBER_S + 1
    monkeypatch.setattr(strategies.time, "monotonic", lambda: later)
    assert not any(until > later for until in one._known.values())


# -- keystone ----------------------------------------------------------------------------------
def test_keystone_reads_what_the_middleware_confirmed():
    found = Keystone().identify(
        {
            "HTTP_X_IDENTITY_STATUS": "Confirmed",
            "HTTP_X_PROJECT_ID": "p",
            "HTTP_X_USER_ID": "u",
            "HTTP_X_ROLES": "member,reader",
        }
    )
    assert (found.project_id, found.roles) == ("p", {"member", "reader"})


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"HTTP_X_IDENTITY_STATUS": "Invalid", "HTTP_X_PROJECT_ID": "p"},
        {"HTTP_X_IDENTITY_STATUS": "Confirmed"},
    ],
)
def test_keystone_refuses(environ):
    with pytest.raises(GpuServiceError):
        Keystone().identify(environ)


@pytest.mark.parametrize(
    ("name", "kind"), [("noauth", NoAuth), ("http_basic", HttpBasic), ("keystone", Keystone)]
)
def test_configured_strategy(conf, name, kind):
    conf.set_override("auth_strategy", name, "api")
    assert isinstance(strategy(conf), kind)
