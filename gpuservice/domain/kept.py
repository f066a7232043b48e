# SPDX-License-Identifier: Apache-2.0
"""What is kept of a task's files: under which names, and how much of a checkpoint."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import TYPE_CHECKING

from gpuservice.domain.errors import Invalid
from gpuservice.domain.jobspec import check_path

if TYPE_CHECKING:  # nodes need the names' rules alone
    from gpuservice.domain.ports import ObjectStore
    from gpuservice.domain.work import Task

#: Characters of a kept path at most: as wide as the column.
MAX_PATH = 512
#: Files of one checkpoint at most, and bytes of the JSON object that lists them: with paths of up
#: to 300 bytes the first is reached before the second.
MAX_CHECKPOINT_FILES, MAX_CHECKPOINT_LIST = 10_000, 4 << 20


def check_kept_path(path: str, pointer: str) -> None:
    """A path under which a file may be kept and shown.

    :raises Invalid: unless it is Unicode, relative, plain (no ``.`` or ``..``), printable, in the
        composed form (NFC) and at most 512 characters long.
    """
    if not _is_unicode(path):
        raise Invalid(f"{path[:200]!r} is not Unicode text.", pointer=pointer)
    check_path(path, pointer)
    if len(path) > MAX_PATH or path.endswith("/") or "." in path.split("/"):
        raise Invalid(
            f"{path[:200]!r} is not a plain path of at most {MAX_PATH} characters.", pointer=pointer
        )
    if not path.isprintable() or not unicodedata.is_normalized("NFC", path):
        raise Invalid(
            f"{path[:200]!r} is not printable text in the composed form (NFC).", pointer=pointer
        )


def unfit(path: str) -> str | None:
    """Why a file cannot be kept under its path, null if it can."""
    try:
        check_kept_path(path, "")
    except Invalid as error:
        return error.detail
    return None


def _is_unicode(text: str) -> bool:
    """False for what stands for the bytes of a name that is not UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def place_of(task: Task) -> str:
    """Everything of one rank of one attempt lies below one prefix."""
    return f"{task.job_id}/{task.attempt_id}/{task.rank}"


def checkpoints_of(task: Task) -> str:
    """Below it, a folder for each checkpoint by its number, completed or not."""
    return f"{place_of(task)}/checkpoints"


def drop_unfinished(objects: ObjectStore, place: str, complete: Collection[str]) -> None:
    """Delete the checkpoints below a place that nobody completed.

    :param complete: prefixes of those that may be restored.
    """
    for name in objects.names(place):
        if f"{place}/{name}" not in complete:
            objects.delete(f"{place}/{name}")
