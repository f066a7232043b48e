# SPDX-License-Identifier: Apache-2.0
"""Artifacts and checkpoints as files, each written aside, synced and renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from oslo_config import cfg

from gpuservice.domain.errors import Conflict, NotFound, TooLarge
from gpuservice.domain.ports import StoredObject
from gpuservice.drivers.room import writing

_PIECE = 1 << 20
#: How names of files begin that are still being written.
_ASIDE = ".put-"


class FileObjectStore:
    """Implements ``domain.ports.ObjectStore`` below ``[artifacts] directory``."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._root = Path(conf.artifacts.directory)

    def put(self, key: str, stream: BinaryIO, max_bytes: int) -> StoredObject:
        """Store atomically; raises ``TooLarge`` or ``StoreFull`` with nothing left behind."""
        with writing(self._root):
            try:
                return self._put(key, stream, max_bytes)
            except FileNotFoundError as error:
                raise Conflict("The place of the object was deleted meanwhile.") from error

    def _put(self, key: str, stream: BinaryIO, max_bytes: int) -> StoredObject:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=_ASIDE, dir=path.parent)
        digest, size = hashlib.sha256(), 0
        try:
            with os.fdopen(handle, "wb") as out:
                while piece := stream.read(_PIECE):
                    size += len(piece)
                    if size > max_bytes:
                        raise TooLarge(
                            f"The object is larger than {max_bytes} bytes.",
                            meta={"max_bytes": max_bytes},
                        )
                    digest.update(piece)
                    out.write(piece)
                out.flush()
                os.fsync(out.fileno())
            os.replace(aside, path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
        return StoredObject(size, digest.hexdigest())

    def open(self, key: str) -> BinaryIO:
        """The object's bytes; raises ``NotFound``."""
        try:
            return self._path(key).open("rb")
        except (FileNotFoundError, IsADirectoryError) as error:
            raise NotFound(f"There is no object {key!r}.") from error

    def names(self, prefix: str) -> Sequence[str]:
        """What lies directly below a prefix."""
        try:
            found = os.listdir(self._path(prefix))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(one for one in found if not one.startswith(_ASIDE))

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """Bytes by name; one that is being put has a name of its own."""
        try:
            entries = list(os.scandir(self._path(prefix)))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {}
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_size
        return found

    def delete(self, prefix: str) -> None:
        """Remove everything below a prefix, or the one object."""
        path = self._path(prefix)
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        parts = key.strip("/").split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ValueError(f"not a key: {key!r}")
        return self._root.joinpath(*parts)
