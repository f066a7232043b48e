# SPDX-License-Identifier: Apache-2.0
"""Work for one task that may take long: getting it ready, handing over what it leaves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from gpuservice.agent.client import AgentClient
from gpuservice.agent.errors import ApiAway, ApiError
from gpuservice.agent.hand import TaskInHand
from gpuservice.agent.handover import CheckpointNotKept, Handover
from gpuservice.agent.hands import Hands
from gpuservice.agent.preparing import (
    NoLongerWanted,
    Preparation,
    PreparationFailed,
    needs_time,
    patiently,
)
from gpuservice.agent.runner import LaunchError, Runner
from gpuservice.agent.settings import AgentSettings
from gpuservice.agent.wire import INLINE_LOG_BYTES, Device

LOG = logging.getLogger(__name__)
#: Tasks whose data is moved at one time, each way: threads that wait cost little.
_THREADS = 64


def _reason(error: Exception) -> str:
    """Why a checkpoint was not kept, in one word."""
    if isinstance(error, CheckpointNotKept):
        return error.reason
    if isinstance(error, ApiError):
        return "refused"
    if isinstance(error, ApiAway):
        return "store_away"
    return "node_disk" if isinstance(error, OSError) else "platform"


class Errands:
    """What the agent's pool does; nothing here raises.

    ``client``: this thread's client, mute until the agent is registered. ``news``: tell that
    there is something to report.
    ``refused``: tell of an error that concerns the whole node.
    """

    def __init__(
        self,
        hands: Hands,
        runner: Runner,
        devices: Sequence[Device],
        settings: AgentSettings,
        client: Callable[[], AgentClient],
        news: Callable[[], None],
        refused: Callable[[Exception], None],
    ) -> None:
        self._hands, self._runner, self._devices = hands, runner, devices
        self._settings, self._client = settings, client
        self._news, self._refused = news, refused
        # Starts wait for servers that tenants name: they must not keep others' results waiting.
        self._starting = ThreadPoolExecutor(_THREADS, thread_name_prefix="agent-start")
        self._moving = ThreadPoolExecutor(_THREADS, thread_name_prefix="agent-data")

    def soon(self, errand: Callable[[TaskInHand], None], hand: TaskInHand) -> None:
        """Do one of the errands of a started task in the background."""
        self._moving.submit(errand, hand)

    def begin(self, hands: Iterable[TaskInHand]) -> None:
        """Start tasks: at once, or in the background where that may wait for the network."""
        for hand in hands:
            if needs_time(hand.order):
                self._starting.submit(self.start, hand)
            else:
                self.start(hand)

    def close(self) -> None:
        """Begin nothing more; what is at work ends by itself."""
        for pool in (self._starting, self._moving):
            pool.shutdown(wait=False, cancel_futures=True)

    def start(self, hand: TaskInHand) -> None:
        """Prepare and launch; what fails makes the task gone with its failure."""
        preparation = Preparation(
            hand.order,
            self._runner,
            self._devices,
            lambda: self._start_wanted(hand),
            self._settings.upload_retry_s,
        )
        try:
            preparation.make(self._client())
            self._hands.launch(hand)
            return
        except PreparationFailed as error:
            hand.fail(error.kind, str(error))
        except LaunchError as error:  # another node may do better
            hand.fail("node_failure", str(error))
        except NoLongerWanted:
            LOG.debug("task %s was stopped before it started", hand.order.task_id)
        except ApiError as error:
            self._refused(error)
            hand.fail("platform", str(error))
        except Exception as error:
            LOG.exception("task %s could not be started", hand.order.task_id)
            hand.fail("platform", f"{type(error).__name__}: {error}")
        if not self._hands.closed:
            self._hands.gone(hand)
            self._news()

    def _start_wanted(self, hand: TaskInHand) -> bool:
        return hand.grace_s is None and self._hands.wanted(hand)

    def finish(self, hand: TaskInHand) -> None:
        """Hand over checkpoint, outputs and logs of an ended task; then it is gone.

        Whatever becomes of one of them, the others are tried.
        """
        try:
            if hand.left_data:
                self._last_checkpoint(hand)
                self._attempt(hand, self._outputs)
            self._attempt(hand, self._logs)
        except NoLongerWanted:
            LOG.debug("task %s: nobody wants what it left", hand.order.task_id)
        if not self._hands.closed:
            self._hands.gone(hand)
            self._news()

    def _attempt(self, hand: TaskInHand, step: Callable[[TaskInHand], None]) -> None:
        """One step of the handover; that it failed is a failure of the task."""
        try:
            step(hand)
        except NoLongerWanted:
            raise
        except Exception as error:
            if isinstance(error, ApiError):
                self._refused(error)
            LOG.warning("task %s: not all was handed over", hand.order.task_id, exc_info=error)
            hand.fail("platform", f"not all it left was handed over: {error}")

    def _last_checkpoint(self, hand: TaskInHand) -> None:
        """A job does not fail for its checkpoint: it ended, and the one before stays."""
        if not hand.keeps_checkpoint:
            return
        try:
            self._handover(hand).checkpoint()
        except NoLongerWanted:
            raise
        except Exception as error:
            LOG.warning("task %s: last checkpoint not kept", hand.order.task_id, exc_info=error)
            hand.logs.note(f"the last checkpoint was not kept: {error}")

    def _outputs(self, hand: TaskInHand) -> None:
        if hand.order.spec is not None and hand.order.spec.outputs:
            self._handover(hand).outputs()

    def _logs(self, hand: TaskInHand) -> None:
        patiently(
            lambda: hand.logs.ship(
                self._client(), lambda: self._hands.wanted(hand), INLINE_LOG_BYTES // 2
            ),
            self._settings.upload_retry_s,
            lambda: self._hands.wanted(hand),
        )

    def checkpoint(self, hand: TaskInHand) -> None:
        """Keep a running task's checkpoint; the next interval tries again if this fails."""
        try:
            if self._hands.wanted(hand) and hand.state == "running":
                self._handover(hand).checkpoint()
        except NoLongerWanted:
            return
        except Exception as error:
            foreseen = isinstance(error, ApiAway | ApiError | CheckpointNotKept)
            LOG.info(
                "task %s: checkpoint not kept: %s",
                hand.order.task_id,
                error,
                exc_info=None if foreseen else error,
            )
            hand.checkpoint_fault(_reason(error), str(error))
        if hand.checkpoint_faults:
            self._news()

    def ship_logs(self) -> None:
        """Post long logs of running tasks, so that only short ones ride in the next sync.

        :raises ApiAway: and other client errors.
        """
        for hand in self._hands.logs_waiting():
            hand.logs.ship(
                self._client(),
                lambda: self._hands.wanted(hand),  # noqa: B023
                INLINE_LOG_BYTES,
            )

    def _handover(self, hand: TaskInHand) -> Handover:
        return Handover(
            hand,
            self._runner,
            self._client(),
            lambda: self._hands.wanted(hand),
            self._settings.upload_retry_s,
            self._settings.artifact_max_files,
            self._settings.checkpoint_max_bytes,
        )
