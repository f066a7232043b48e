# SPDX-License-Identifier: Apache-2.0
"""What programs refuse at their start, and what an all-in-one remembers of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuservice.agent import program
from gpuservice.agent.probes import nvml
from gpuservice.cmd import geometry
from gpuservice.cmd.lifetime import configuration, plainly
from gpuservice.db.engine import create_engine
from gpuservice.domain.errors import CloudError, Misconfigured
from gpuservice.drivers import durable_files, loader
from gpuservice.messaging.bus import Bus
from gpuservice.scheduler.leadership import coordination_url


def started(tmp_path, **given):
    """The configuration of a start with these arguments."""
    conf = configuration([], "gpuservice-all-in-one", [])
    geometry.decide(conf, tmp_path, given)
    return conf


def test_a_start_without_arguments_carries_on_as_it_was_begun(tmp_path):
    conf = started(tmp_path)
    assert (conf.simulated.hosts, conf.simulated.gpus_per_host) == (8, 8)
    geometry.keep(started(tmp_path, hosts=2, gpu_type="h100"), tmp_path)
    for given in ({}, {"hosts": 2}, {"gpus_per_host": 8, "cloud": "simulated"}):
        conf = started(tmp_path, **given)
        assert (conf.simulated.hosts, conf.simulated.gpu_type) == (2, "h100")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"hosts": 3}, "--hosts 2 (now 3)"),
        ({"gpus_per_host": 4}, "--gpus-per-host 8 (now 4)"),
        ({"gpu_type": "h100"}, "--gpu-type a100-80gb (now h100)"),
        ({"cloud": "local"}, "--cloud simulated (now local)"),
    ],
)
def test_a_start_with_other_hosts_is_refused(tmp_path, given, told):
    geometry.keep(started(tmp_path, hosts=2), tmp_path)
    with pytest.raises(Misconfigured) as refused:
        started(tmp_path, **given)
    assert told in str(refused.value) and str(tmp_path) in str(refused.value)


def test_hosts_of_a_configuration_file_count_as_well(tmp_path):
    geometry.keep(started(tmp_path, hosts=2), tmp_path)
    (tmp_path / "more.conf").write_text("[simulated]\nhosts = 5\n")
    conf = configuration(["--config-file", f"{tmp_path}/more.conf"], "gpuservice-all-in-one")
    with pytest.raises(Misconfigured, match=r"--hosts 2 \(now 5\)"):
        geometry.decide(conf, tmp_path, {})


class Cloud:
    """A machine with these cards."""

    def __init__(self, devices):
        self.devices = devices

    def inventory(self):
        if self.devices is None:
            raise CloudError("NVML cannot be used here: no library")
        return [SimpleNamespace(devices=self.devices)]


@pytest.mark.parametrize(("devices", "told"), [(None, "no library"), ((), "no NVIDIA card")])
def test_a_machine_without_cards_is_told_at_once(tmp_path, monkeypatch, devices, told):
    monkeypatch.setattr(loader, "load", lambda *_: Cloud(devices))
    conf = started(tmp_path, cloud="local")
    with pytest.raises(Misconfigured, match=told):
        geometry.look_at_cards(conf)
    monkeypatch.setattr(loader, "load", lambda *_: Cloud(("card",)))
    geometry.look_at_cards(conf)


@pytest.mark.parametrize("url", ["nonsense", "foo://x", "oracle+nosuch://x/y"])
def test_a_database_that_nothing_connects_to(url):
    with pytest.raises(Misconfigured, match="connection cannot be used"):
        create_engine(url)


@pytest.mark.parametrize(
    "url", ["postgresql://u:geheim@h:x/db", "mysql+pymysql://u:12@geheim@h:7a/db", "x://[::geheim/"]
)
def test_a_url_that_cannot_be_read_keeps_its_password(url):
    with pytest.raises(Misconfigured, match="connection cannot be used") as refused:
        create_engine(url)
    assert "geheim" not in str(refused.value)
    assert refused.value.__cause__ is None and refused.value.__context__ is None


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ("postgresql+psycopg2://u:p%40w@h:1/db", "postgresql://u:p@w@h:1/db"),
        ("mysql+pymysql://u:pw@h/db?charset=utf8", "mysql://u:pw@h/db?charset=utf8"),
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgresql://u:12#geheim@h/db", None),
        ("postgresql://u:ge%2Fheim@h/db", None),
        ("sqlite:////x", None),
    ],
)
def test_the_coordinator_is_the_database_where_it_can_be(database, url):
    assert coordination_url(None, database) == url


def test_geometry_is_written_when_it_changed_alone(tmp_path):
    geometry.keep(started(tmp_path, hosts=2), tmp_path)
    kept = tmp_path / "geometry.json"
    before = kept.stat()
    geometry.keep(started(tmp_path, hosts=2), tmp_path)
    after = kept.stat()  # that it was read may be noted as well
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_geometry_on_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_files.os, "fsync", full)
    with pytest.raises(Misconfigured, match=r"geometry.json cannot be written: .*No space left"):
        geometry.keep(started(tmp_path, hosts=2), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", '{"hosts"', "[]"])
def test_geometry_that_was_cut_off_says_what_to_do(tmp_path, text):
    (tmp_path / "geometry.json").write_text(text)
    with pytest.raises(Misconfigured, match="is not whole: remove it, and start with the arg"):
        started(tmp_path, hosts=2)


def test_a_broker_of_no_kind_and_a_driver_of_no_name(tmp_path):
    (tmp_path / "bus.conf").write_text("[DEFAULT]\ntransport_url = foo://x\n")
    conf = configuration(["--config-file", f"{tmp_path}/bus.conf"], "gpuservice-api")
    with pytest.raises(SystemExit) as refused, plainly("gpuservice-api"):
        Bus(conf, "here").start()
    assert str(refused.value).startswith("gpuservice-api: transport_url cannot be used")
    with pytest.raises(SystemExit) as refused, plainly("gpuservice-api"):
        loader.load("logs", "foo", conf)
    assert str(refused.value) == "gpuservice-api: There is no logs driver 'foo'."


def test_an_agent_without_the_nvml_it_was_told_to_use(tmp_path, monkeypatch, caplog):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(nvml.importlib, "import_module", missing)
    (tmp_path / "user-data").write_text(
        '{"api_url": "http://127.0.0.1:1", "node_id": "n", "bootstrap": "b"}'
    )
    (tmp_path / "settings").write_text('{"probe": "nvml", "runner": "nofork"}')
    arguments = ["--user-data", f"{tmp_path}/user-data", "--state-dir", f"{tmp_path}/state"]
    arguments += ["--config-file", f"{tmp_path}/settings"]
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    assert program.main(arguments) == 1
    assert "NVML cannot be used here" in caplog.text
