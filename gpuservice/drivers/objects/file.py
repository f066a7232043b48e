# SPDX-License-Identifier: Apache-2.0
"""Artifacts and checkpoints as files, each written aside, synced and renamed."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

from oslo_config import cfg

from gpuservice.domain.errors import NotFound, TooLarge
from gpuservice.domain.ports import StoredObject
from gpuservice.drivers.room import writing

_PIECE = 1 << 20


class FileObjectStore:
    """Implements ``domain.ports.ObjectStore`` below ``[artifacts] directory``."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._root = Path(conf.artifacts.directory)

    def put(self, key: str, stream: BinaryIO, max_bytes: int) -> StoredObject:
        """Store atomically; raises ``TooLarge`` or ``StoreFull`` with nothing left behind."""
        with writing(self._root):
            return self._put(key, stream, max_bytes)

    def _put(self, key: str, stream: BinaryIO, max_bytes: int) -> StoredObject:
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(prefix=".put-", dir=path.parent)
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
