# SPDX-License-Identifier: Apache-2.0
"""The agent: registers, keeps in step with the service, and makes its node be what it says.

Three threads: the caller's watches the runner and keeps the lease file alive; one polls (and may
wait long for an answer); one reports ends at once while a poll is waiting. Data is moved by a
small pool. None of them handles signals, forks, or changes the process, so that several agents
can live in one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable

from gpuservice.agent.client import AgentClient
from gpuservice.agent.credentials import IdentityFile
from gpuservice.agent.device_nodes import DeviceNodes
from gpuservice.agent.errands import Errands
from gpuservice.agent.errors import (
    ApiAway,
    ApiError,
    Fenced,
    InstanceConflict,
    NotInTouch,
    Refused,
    Revoked,
)
from gpuservice.agent.hands import Hands
from gpuservice.agent.health_news import HealthNews
from gpuservice.agent.journal import Journal
from gpuservice.agent.lease import boot_time
from gpuservice.agent.lease_writer import TOUCH_S, LeaseWriter
from gpuservice.agent.node_secret import NodeSecret
from gpuservice.agent.nofork_runner import NoForkRunner
from gpuservice.agent.orders import SyncAnswer
from gpuservice.agent.probes import probe_for
from gpuservice.agent.process_runner import ProcessRunner
from gpuservice.agent.registering import Registering, registration, verdict
from gpuservice.agent.runner import Ended, Event, Runner
from gpuservice.agent.settings import AgentSettings, UserData
from gpuservice.agent.wire import SyncRequest

LOG = logging.getLogger(__name__)
#: Longest pause between two tries while the service is away, seconds.
_MAX_BACKOFF_S = 5.0
#: Longest time that reports are gathered for, seconds.
_MAX_COALESCE_S = 0.25
#: Seconds that fencing and ``--stop-tasks`` wait for killed tasks to be gone.
_KILL_WAIT_S = 30.0


class AgentRefused(RuntimeError):
    """The service does not want this agent (any more); its tasks were ended."""


class Agent:
    """One node's agent. ``run`` once; afterwards make a new one.

    ``api_url`` and token come with the user data; everything it must remember lies in
    ``state_dir``, which must be on a disk that survives it.
    """

    def __init__(self, user_data: UserData, state_dir: str, settings: AgentSettings) -> None:
        self._user_data, self._settings = user_data, settings
        self._state_dir = os.path.realpath(state_dir)
        self._instance = ""
        self._news = threading.Condition()
        self._dirty = False
        self._polling = False
        self._closing = threading.Event()
        self._fatal: Exception | None = None
        self._epoch = 0
        #: Set while this agent is registered and the service answers.
        self._in_touch = threading.Event()
        self._lease_s: int | None = None
        self._interval_s = 1.0
        self._local = threading.local()

    def run(self, stop: threading.Event, *, stop_tasks: bool | threading.Event = False) -> None:
        """Work until ``stop`` is set; tasks go on after that, unless ``stop_tasks`` (is set then).

        :raises StateDirectoryBusy: another agent is at work there.
        :raises AgentRefused: the service revoked or refused this node; all tasks were ended.
        """
        os.makedirs(self._state_dir, mode=0o700, exist_ok=True)
        self._identity_file = IdentityFile(self._state_dir, self._user_data.node_id)
        self._identity_file.hold()
        self._instance = self._identity_file.process()
        self._watcher = threading.current_thread()
        try:
            self._secret = NodeSecret(self._identity_file, self._settings.rotate_secret_s)
            self._epoch = self._secret.epoch or 0
            self._registering = Registering(
                self._settings.register_patience_s, first=self._secret.epoch is None
            )
            self._open()
            try:
                self._work(stop)
                ending = stop_tasks if isinstance(stop_tasks, bool) else stop_tasks.is_set()
                if ending or self._fatal is not None:
                    self._end_all()
            finally:
                self._close()
        finally:
            self._identity_file.release()
        if self._fatal is not None:
            raise AgentRefused(verdict(self._fatal, self._user_data)) from self._fatal

    def _open(self) -> None:
        """Everything that needs no service; tasks of an earlier agent are found here."""
        settings = self._settings
        lease_file = f"{self._state_dir}/lease"
        self._lease = LeaseWriter(lease_file)
        self._lease.touch()
        self._probe = probe_for(settings)
        self._health = HealthNews(self._probe)
        self._devices = tuple(self._probe.devices())
        self._journal = Journal(f"{self._state_dir}/journal")
        addresses = [device.address for device in self._devices]
        nodes = DeviceNodes(self._probe, addresses, settings.allowed_devices)
        self._runner: Runner = (
            NoForkRunner()
            if settings.runner == "nofork"
            else ProcessRunner(self._state_dir, settings, lease_file, nodes)
        )
        self._hands = Hands(self._runner, self._journal, settings)
        self._errands = Errands(
            self._hands,
            self._runner,
            self._devices,
            settings,
            self._errand_client,
            self._note_news,
            self._note_fatal,
        )
        for order in self._runner.adopt():
            self._hands.adopt(order)

    def _close(self) -> None:
        self._closing.set()
        self._hands.closed = True
        with self._news:
            self._news.notify_all()
        self._errands.close()
        self._reporter.join(2)
        self._runner.close()
        self._lease.close()
        self._journal.close()

    def _work(self, stop: threading.Event) -> None:
        poller = threading.Thread(target=self._poll_forever, daemon=True, name="agent-poll")
        self._reporter = threading.Thread(
            target=self._report_forever, daemon=True, name="agent-report"
        )
        poller.start()
        self._reporter.start()
        look_at_logs = 0.0
        while not stop.is_set() and self._fatal is None:
            self._watch(TOUCH_S)
            now = time.monotonic()
            if now >= look_at_logs:
                look_at_logs = now + self._settings.log_interval_s
                for hand in self._hands.due_for_checkpoint(now):
                    self._errands.soon(self._errands.checkpoint, hand)
                if self._hands.logs_waiting():
                    self._note_news()

    def _watch(self, timeout_s: float) -> None:
        """One look at the runner, one sign of life for the supervisors; a look that fails may not
        end the agent, and with it the node."""
        try:
            events = self._runner.wait(timeout_s)
        except OSError:
            events = ()
            LOG.exception("the tasks cannot be looked at now")
            self._closing.wait(timeout_s)
        self._lease.touch()
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        hand = self._hands.happened(event)
        if hand is not None and isinstance(event, Ended):
            if hand.has_data or hand.logs.backlog() > 4096:
                self._errands.soon(self._errands.finish, hand)
                return
            self._hands.gone(hand)
        self._note_news()

    def _note_news(self) -> None:
        with self._news:
            self._dirty = True
            self._news.notify_all()

    def _note_fatal(self, error: Exception) -> None:
        """Fenced or revoked, noticed by an errand: the poll will hear the same."""
        LOG.warning("refused: %s", error)
        self._note_news()

    def _client(self) -> AgentClient:
        """This thread's client for registration and syncs."""
        return self._client_of("client", lambda: self._epoch)

    def _errand_client(self) -> AgentClient:
        """This thread's client for the data of tasks; see ``_epoch_in_touch``."""
        return self._client_of("errand_client", self._epoch_in_touch)

    def _client_of(self, name: str, epoch: Callable[[], int]) -> AgentClient:
        client: AgentClient | None = getattr(self._local, name, None)
        if client is None:
            client = AgentClient(self._user_data, self._secret, self._settings, epoch)
            setattr(self._local, name, client)
        return client

    def _epoch_in_touch(self) -> int:
        """Only who is registered may speak of tasks: before, a refusal would mean nothing.

        :raises NotInTouch: soon, while the service is away.
        """
        if not self._in_touch.wait(1):
            raise NotInTouch("the agent is not in touch with the service")
        return self._epoch

    # The polling thread -----------------------------------------------------------------

    def _poll_forever(self) -> None:
        failures = 0
        registered = False
        while not self._closing.is_set():
            try:
                if not registered:
                    self._secret.settle(self._client())
                    self._register()
                    registered = True
                with contextlib.suppress(ApiAway):  # a change that hangs holds up no sync
                    self._secret.rotate_if_due(self._client())
                self._poll_once()
                failures = 0
            except ApiAway as error:
                self._in_touch.clear()
                failures += 1
                LOG.log(
                    logging.WARNING if failures == 1 else logging.DEBUG,
                    "the service is away: %s",
                    error,
                )
                self._closing.wait(
                    min(0.2 * 2 ** min(failures, 8), _MAX_BACKOFF_S) * random.uniform(0.5, 1.0)
                )
            except Fenced as error:
                self._in_touch.clear()
                LOG.warning("fenced, ending everything here: %s", error)
                self._end_all()
                registered = False
            except InstanceConflict as error:
                self._in_touch.clear()
                LOG.warning("another agent speaks for this node: %s", error)
                self._closing.wait(random.uniform(0.5, 1.5))
                registered = False
            except (Revoked, Refused) as error:
                if registered and not isinstance(error, Revoked):
                    LOG.error("a sync was refused: %s", error)
                    self._closing.wait(_MAX_BACKOFF_S)
                    continue
                pause = None if registered else self._registering.pause_after(error)
                if pause is None:
                    self._fatal = error
                    return
                LOG.warning("not registered yet, trying again: %s", error)
                self._closing.wait(pause)
            except Exception:
                # The node's own trouble (a full disk, a driver) is no word of the service: what
                # runs goes on, under its lease if it has one.
                LOG.exception("the agent could not do its work; trying again")
                self._closing.wait(_MAX_BACKOFF_S)

    def _register(self) -> None:
        own = (self._user_data.bootstrap, self._secret.current, self._instance)
        answer = self._client().register(
            registration(*own, self._runner, self._devices, self._probe.health())
        )
        if self._secret.epoch not in (None, answer.epoch):
            LOG.warning("the node's epoch changed: ending what is left of the old one")
            self._end_all()
        self._epoch, self._lease_s = answer.epoch, answer.lease_s
        self._interval_s = answer.interval_s
        self._secret.know_epoch(answer.epoch)
        self._registering.succeeded()
        self._in_touch.set()
        LOG.info("registered as node %s, epoch %d", answer.node_id, answer.epoch)

    def _poll_once(self) -> None:
        with self._news:
            self._dirty, self._polling = False, True
        # After an outage an answer is wanted at once: uploads wait for it.
        wait_s = self._settings.max_wait_s if self._in_touch.is_set() else 0.0
        if self._lease_s is not None:
            wait_s = min(wait_s, self._lease_s / 4)
        began = time.monotonic()
        try:
            launched, changed = self._sync(wait_s)
        finally:
            with self._news:
                self._polling = False
        took = time.monotonic() - began
        pause = self._settings.coalesce_s if launched else 0.0
        # Answered at once: nobody may wait there now. (A service that answers earlier than it
        # was asked to, for the sake of the node's liveness, is asked again.)
        if not changed and took < min(wait_s / 2, 1.0):
            pause = self._interval_s * random.uniform(0.8, 1.0) - took
        if pause > 0:
            with self._news:
                if self._news.wait_for(lambda: self._dirty or self._closing.is_set(), pause):
                    self._news.wait_for(self._closing.is_set, self._settings.coalesce_s)

    # The reporting thread ---------------------------------------------------------------

    def _report_forever(self) -> None:
        took = 0.0
        while not self._closing.is_set():
            with self._news:
                self._news.wait_for(
                    lambda: (self._dirty and self._polling) or self._closing.is_set(), 5
                )
                if not (self._dirty and self._polling):
                    continue
                # A service under load answers late, and is then told more at once.
                pause = max(self._settings.coalesce_s, min(took, _MAX_COALESCE_S))
                self._news.wait_for(self._closing.is_set, pause)
                self._dirty = False
            try:
                self._errands.ship_logs()
                began = time.monotonic()
                self._sync(0)
                took = time.monotonic() - began
            except (ApiAway, ApiError) as error:
                # The polling thread meets the same and does what is to be done.
                LOG.debug("report failed: %s", error)
                self._closing.wait(random.uniform(0.5, 1.0))
                if not isinstance(error, Fenced | Revoked):
                    self._note_news()
            except Exception:
                LOG.exception("reporting failed")
                self._closing.wait(1)

    # Both -------------------------------------------------------------------------------

    def _sync(self, wait_s: float) -> tuple[bool, bool]:
        """One exchange; returns whether tasks were started and whether anything changed."""
        epoch, said_at = self._epoch, time.monotonic()
        said, postponed = self._hands.reports()
        request = SyncRequest(
            epoch=epoch,
            revision=self._hands.revision,
            instance=self._instance,
            tasks=tuple(one.report for one in said),
            devices=self._health.due(),
            wait_s=0 if postponed else wait_s,
            telemetry={"load": os.getloadavg()[0]},
        )
        sent_at = boot_time()
        try:
            answer = self._client().sync(request)
        except Exception:
            self._hands.unheard(said)
            raise
        self._in_touch.set()
        self._hands.heard(said)
        self._health.heard(request.devices, said_at)
        if postponed:
            self._note_news()
        if answer.epoch != self._epoch or self._closing.is_set():
            return False, False
        self._lease_s, self._interval_s = answer.lease_s, answer.interval_s
        if answer.lease_s is not None and boot_time() >= sent_at + answer.lease_s:
            return False, False  # too late to start anything on it
        self._lease.renew(sent_at, answer.lease_s)
        return self._apply(answer, sent_at)

    def _apply(self, answer: SyncAnswer, sent_at: float) -> tuple[bool, bool]:
        launches, changed = self._hands.apply(answer, sent_at)
        self._errands.begin(launches)
        if changed and not launches:
            self._note_news()
        return bool(launches), changed

    def _end_all(self) -> None:
        """SIGKILL to every task, and wait until they are gone; nothing of them is reported."""
        LOG.info("ending %d tasks", self._hands.discard_all())
        until = time.monotonic() + _KILL_WAIT_S
        while self._hands.any_left() and time.monotonic() < until:
            if threading.current_thread() is self._watcher:
                self._watch(0.1)
            else:
                time.sleep(0.02)
