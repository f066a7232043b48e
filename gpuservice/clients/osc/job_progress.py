# SPDX-License-Identifier: Apache-2.0
"""The live line of a job that is waited for: its stage, why it waits, when it should start."""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import Any, TextIO

from gpuservice.clients.osc.values import compact
from gpuservice.clients.sdk.v1.job import Job


def told(job: Job) -> str:
    """A job's stage in one line."""
    words = f"{job.name}: {job.status}"
    if job.counts:
        parts = [f"{number} {status}" for status, number in job.counts.items() if number]
        words += f" ({', '.join(parts)})" if parts else ""
    waiting: dict[str, Any] = job.waiting or {}
    if job.status in ("queued", "held") and waiting:
        if waiting.get("position"):
            words += f", position {waiting['position']}"
        if waiting.get("summary"):
            words += f": {waiting['summary']}"
        if waiting.get("estimated_start_at"):
            words += f" Expected start {local(waiting['estimated_start_at'])}."
    elif job.status in ("starting", "running", "preempting", "cancelling"):
        if job.nodes:
            words += f" on {', '.join(job.nodes[:4])}" + (" ..." if len(job.nodes) > 4 else "")
        if (job.attempt or 0) > 1:
            words += f", attempt {job.attempt}"
    elif job.is_ended:
        words += ended(job)
    return compact(words)


def ended(job: Job) -> str:
    """How it ended, to be put after its status."""
    facts = [str(one) for one in (job.failure_class,) if one and job.status != "cancelled"]
    if job.exit_code is not None and job.status != "succeeded":
        facts.append(f"exit code {job.exit_code}")
    words = f" ({', '.join(facts)})" if facts else ""
    return words + (f": {job.status_reason}" if job.status_reason else "")


def local(moment: str) -> str:
    """A time of the service in the user's own zone."""
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return moment


class LiveLine:
    """One line that is written over; a plain line a change where there is no terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._last: str | None = None

    def show(self, job: Job) -> None:
        """Show where the job is."""
        text = told(job)
        if text == self._last:
            return
        self._last = text
        if self._live:
            width = max(shutil.get_terminal_size().columns - 1, 20)
            cut = text if len(text) <= width else text[: width - 1] + "…"
            self._stream.write(f"\r{cut}\x1b[K")
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._live and self._last is not None:
            self._stream.write("\n")
            self._stream.flush()
            self._last = None
