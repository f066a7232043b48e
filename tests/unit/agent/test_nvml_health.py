# SPDX-License-Identifier: Apache-2.0
"""When a device counts as bad."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuservice.agent.probes.nvml import NvmlProbe
from gpuservice.agent.probes.nvml_health import LOOK_S, NvmlHealth
from tests.unit.agent.test_parts import FakeNvml

FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"


class Nvml(FakeNvml):
    """Two devices; the second is the one that things befall."""

    def __init__(self):
        self.present = [0, 1]
        self.degrees, self.ecc = 40, 0
        self.events = []
        self.registered = []
        self.silent = self.dead = False

    def nvmlDeviceGetCount(self):
        if self.dead:
            raise RuntimeError("driver not loaded")
        return len(self.present)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.present[index]

    def nvmlDeviceGetMemoryInfo(self, handle):
        if self.silent and handle:
            raise RuntimeError("GPU is lost")
        return super().nvmlDeviceGetMemoryInfo(handle)

    def nvmlDeviceGetTotalEccErrors(self, handle, kind, counter):
        assert (kind, counter) == (1, 0)
        return self.ecc if handle else 0

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return self.degrees if handle else 40

    def nvmlDeviceGetTemperatureThreshold(self, handle, threshold):
        assert threshold == 1
        return 90

    def nvmlEventSetCreate(self):
        return "events"

    def nvmlDeviceRegisterEvents(self, handle, kinds, events):
        self.registered.append((handle, kinds))

    def nvmlEventSetWait_v2(self, events, milliseconds):
        assert (events, milliseconds) == ("events", 0)
        if not self.events:
            raise RuntimeError("Timeout")
        return SimpleNamespace(device=1, eventType=8, eventData=self.events.pop(0))


class Watch:
    """A library, and a look at it whenever it is asked for."""

    def __init__(self):
        self.library, self.now = Nvml(), 0.0
        self.health = NvmlHealth(self.library, lambda: self.now)

    def second(self):
        self.now += LOOK_S
        first, second = self.health.of([FIRST, SECOND])
        assert (first.address, second.address) == (FIRST, SECOND)
        if not self.library.dead:
            assert first.healthy, first
        assert second.healthy == (second.reason is None)
        return second.reason


@pytest.fixture
def watch():
    made = Watch()
    assert made.second() is None
    return made


def test_a_device_that_fell_off_the_bus(watch):
    watch.library.present = [0]
    assert watch.second() == "it is not on the bus any more"
    watch.library.present = [0, 1]
    assert watch.second() is None


def test_a_device_or_driver_that_does_not_answer(watch):
    watch.library.silent = True
    assert watch.second() == "the device does not answer: GPU is lost"
    watch.library.dead = True
    assert watch.second() == "the driver does not answer: driver not loaded"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((3, 1, 0, 0), None),
        ((0, 1, 1, 0), "waits for a reset"),
        ((0, 1, 0, 1), "could not be remapped"),
    ],
)
def test_memory_rows(watch, rows, said):
    watch.library.rows = rows
    reason = watch.second()
    assert reason is None if said is None else said in reason


def test_models_that_only_count_memory_errors(watch):
    watch.library.nvmlDeviceGetRemappedRows = lambda handle: 1 / 0
    assert watch.second() is None
    watch.library.ecc = 2
    assert watch.second() == "2 memory errors could not be corrected since its last reset"


def test_heat_and_cooling(watch):
    for degrees, hot in ((89, False), (90, True), (87, True), (85, False), (88, False)):
        watch.library.degrees = degrees
        assert (watch.second() is not None) == hot, degrees


def test_xids_of_programs_are_nothing_and_others_stay(watch):
    assert watch.library.registered == [(0, 8), (1, 8)]
    watch.library.events = [13, 43]
    assert watch.second() is None
    watch.library.events = [31, 79]
    assert watch.second().startswith("the driver noted Xid 79")
    assert watch.second().startswith("the driver noted Xid 79")


def test_devices_are_not_asked_more_often_than_needed(watch):
    watch.library.silent = True
    assert watch.health.of([FIRST, SECOND])[1].healthy
    watch.now += LOOK_S
    assert not watch.health.of([FIRST, SECOND])[1].healthy


def test_a_library_without_events_or_temperatures():
    library = FakeNvml()
    assert [one.healthy for one in NvmlHealth(library).of([FIRST, SECOND])] == [True, True]


def test_the_probe_remembers_what_was_there():
    library = Nvml()
    probe = NvmlProbe(library)
    assert len(probe.devices()) == 2
    library.present = [0]
    assert [one.healthy for one in probe.health()] == [True, False]
